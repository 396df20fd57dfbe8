"""Re-exports of the storages of the package ``storages``."""

from storages import *  # noqa: F403
from storages import __all__ as __all__
