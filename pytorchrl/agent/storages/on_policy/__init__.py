"""Re-exports of the on-policy storages, which hold a rollout of the current policy."""

from storages.on_policy import *  # noqa: F403
from storages.on_policy import __all__ as __all__
