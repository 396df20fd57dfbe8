"""Re-export of :class:`GAEBuffer`."""

from storages.on_policy.gae_buffer import GAEBuffer

__all__ = ["GAEBuffer"]
