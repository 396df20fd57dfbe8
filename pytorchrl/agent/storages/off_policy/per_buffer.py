"""Re-export of :class:`PERBuffer`."""

from storages.off_policy.per_buffer import PERBuffer

__all__ = ["PERBuffer"]
