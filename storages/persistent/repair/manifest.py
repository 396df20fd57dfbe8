"""The manifest of a damaged directory, rebuilt from a log file where it is damaged itself."""

from pathlib import Path
from typing import TypeVar

from storages.errors import DamageError, PersistenceError
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.manifest import Manifest

_AnyManifest = TypeVar("_AnyManifest", bound=Manifest)


def manifest_of(folder: Path, kind: type[_AnyManifest], log: CommitLog) -> tuple[_AnyManifest, list[str]]:
    """Return the manifest of a directory, and a description of its damage if it was rebuilt from the log.

    Raises:
        PersistenceError: there is no manifest, neither in its file nor in the log.
    """
    try:
        manifest = kind.read(folder)
        if manifest is not None:
            return manifest, []
        error = PersistenceError(f"{folder} holds no storage")
    except PersistenceError as refused:
        error = refused
    # Every log file begins with a copy of the manifest.
    for one in log.files.walk():
        if not isinstance(one, str) and "manifest" in one[0].record.facts:
            return kind.from_facts(one[0].record.facts["manifest"]), [str(error).partition(";")[0]]
    if isinstance(error, DamageError):
        raise PersistenceError(f"{error}, but no log file is intact to rebuild it from; nothing was changed") from None
    raise error
