"""Exceptions of storages, persistence and data sets."""


class EmptyStorageError(RuntimeError):
    """A batch was requested from an empty storage."""


class PersistenceError(RuntimeError):
    """Data cannot be written or read; the message names the file, what is safe, and the way out."""


class DamageError(PersistenceError):
    """Stored data is corrupt; none of it is used."""


class DroppedError(PersistenceError):
    """Data to be read was dropped by the process that writes to the directory."""


class DatasetError(PersistenceError):
    """A data set cannot be read, or cannot be written as requested."""


class AmbiguousDataError(DatasetError):
    """A file leaves open what its arrays mean, or how its episodes end; the message names what answers."""
