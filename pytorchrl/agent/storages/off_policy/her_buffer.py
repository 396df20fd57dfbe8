"""Re-export of :class:`HERBuffer`."""

from storages.off_policy.her_buffer import HERBuffer

__all__ = ["HERBuffer"]
