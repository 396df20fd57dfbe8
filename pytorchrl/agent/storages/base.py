"""Re-export of :class:`Storage`."""

from storages.storage import Storage

__all__ = ["Storage"]
