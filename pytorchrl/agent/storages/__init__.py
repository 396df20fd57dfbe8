"""Storages, where users of the toolkit look for them; they live in the package ``storages``."""

from storages import *  # noqa: F403
from storages import __all__ as __all__
