"""Re-exports of the off-policy storages, which replay transitions of past policies."""

from storages.off_policy import *  # noqa: F403
from storages.off_policy import __all__ as __all__
