"""Storages whose transitions outlive the policy that made them."""

from storages.off_policy import *  # noqa: F403
from storages.off_policy import __all__ as __all__
