"""Directories whose names survive a power cut."""

from pathlib import Path

from storages.persistent.log.log_segments import sync_directory


def make_directory(directory: Path, durable: bool) -> None:
    """Make a directory, and those above it that are missing.

    Args:
        directory: which may be there already.
        durable: whether the names of all that are made are to survive a power cut.

    Raises:
        OSError: one cannot be made; those above it stay.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        if durable:
            try:
                sync_directory(path.parent)
            except OSError:
                # Otherwise the next call would find it, and take its name for safe.
                path.rmdir()
                raise
