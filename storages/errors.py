"""What can go wrong on disk."""


class PersistenceError(RuntimeError):
    """Something cannot be written or read; the text names the file, what is safe, and the way out."""


class DamageError(PersistenceError):
    """What was written is not what is read; nothing of it is taken for data."""


class DroppedError(PersistenceError):
    """What is to be read was dropped by another process, which writes there."""


class DatasetError(PersistenceError):
    """A data set that cannot be read, or cannot be written as it is asked for."""
