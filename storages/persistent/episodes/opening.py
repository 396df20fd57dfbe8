"""Which archive a directory holds, or is to hold where it goes on from another."""

from pathlib import Path

from storages.errors import PersistenceError
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.archive_manifest import Ancestor, ArchiveManifest


def manifest_to_read(directory: Path) -> ArchiveManifest:
    """The manifest of a directory that somebody else writes.

    Raises:
        PersistenceError: there is none.
    """
    manifest = ArchiveManifest.read(directory)
    if manifest is None:
        raise PersistenceError(f"{directory} holds no episodes yet, and read_only=True writes none")
    return manifest


def manifest_to_write(directory: Path, ancestor: Path | None, durable: bool) -> ArchiveManifest | None:
    """The manifest of a directory; None where the first transition has to say what it is.

    Args:
        directory: which must be there.
        ancestor: the directory that it goes on from, as that is now, or was when this one was made.
        durable: whether a new manifest is to survive a power cut.

    Raises:
        PersistenceError: the directory goes on from another, or the ancestor holds nothing.
        OSError: a new manifest cannot be written.
    """
    manifest = ArchiveManifest.read(directory)
    if ancestor is None:
        return manifest
    if manifest is not None:
        if manifest.ancestor is None or manifest.ancestor.directory != str(ancestor):
            there = manifest.ancestor and manifest.ancestor.directory
            raise PersistenceError(
                f"{directory} goes on from {there or 'no ancestor'}, not from {ancestor}; name that one, or a new "
                f"directory"
            )
        return manifest
    older = ArchiveManifest.read(ancestor)
    if older is None:
        raise PersistenceError(f"{ancestor} holds no episodes to go on from")
    record = Archive(ancestor, older, read_only=True).record
    inherited = Ancestor(str(ancestor), record["record"], record["checksum"])
    manifest = ArchiveManifest.made(older.layout, older.stacked, older.volume_rows, inherited)
    manifest.write(directory, durable)
    return manifest
