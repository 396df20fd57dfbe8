"""Re-export of :class:`EREBuffer`."""

from storages.off_policy.ere_buffer import EREBuffer

__all__ = ["EREBuffer"]
