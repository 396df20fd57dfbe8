"""Looking into a storage's directory without making the storage."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.persistent.log.closing_note import refuse_missing
from storages.persistent.log.files import refuse_links_in
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.log_files import LogFiles
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.recovery import Recovered, recover
from storages.persistent.replay.write_ahead_log import ERRORS_SUFFIX, STEPS_SUFFIX, Position

_TRIES = 100
"""Where another process has changed the directory each time."""


def read_state(directory: str | Path, position: Position | None = None) -> dict[str, Any]:
    """The state of the storage that a directory holds, as ``state_dict`` gives it of one without a directory.

    Nothing is changed, and another process may go on writing.

    Args:
        directory: of the storage.
        position: the commit; the last one where None.

    Raises:
        PersistenceError: there is no storage, or not this commit.
        DamageError: something is not what was written; the text names file and steps.
    """
    ring, found = read_ring(directory, position)
    here: Position = {"commit": found.commit, "checksum": found.checksum}
    if found.state is None or position not in (None, here):
        raise PersistenceError(
            f"{Path(directory).absolute()} does not have commit {(position or here)['commit']}, or not any more"
        )
    return {"ring": ring.state_dict()} | found.state


def read_ring(directory: str | Path, position: Position | None = None) -> tuple[Ring, Recovered]:
    """Return ring and recovery state of a directory; as :func:`read_state`."""
    folder = Path(directory).absolute()
    for tries_left in reversed(range(_TRIES)):
        before = _listed(folder)
        try:
            return _read_ring(folder, position)
        except (DamageError, FileNotFoundError) as error:
            # What seems to be missing may have been dropped, or written, by another process meanwhile.
            if tries_left and _listed(folder) != before:
                continue
            if isinstance(error, FileNotFoundError):
                raise PersistenceError(
                    f"{error.filename} was dropped while it was read, as newer ones came; try again"
                ) from None
            raise
        except OSError as error:
            raise PersistenceError(f"{folder} cannot be read: {error}") from error
    raise AssertionError


def _read_ring(folder: Path, position: Position | None) -> tuple[Ring, Recovered]:
    manifest = Manifest.read(folder)
    if manifest is None:
        raise PersistenceError(f"{folder} holds no storage")
    refuse_links_in(folder)
    with name_damage(folder):
        # In this order: the errors of all steps that are there now are on disk already.
        steps, errors = (
            LogFiles(folder, suffix, durable=False, as_of_now=True) for suffix in (STEPS_SUFFIX, ERRORS_SUFFIX)
        )
        ring = manifest.ring(folder.name, steps.nbytes)
        found = recover(ring, steps, errors, None if position is None else position["commit"])
        if position is None:
            refuse_missing(folder, found.commit, found.checksum, ring.steps)
    return ring, found


def _listed(folder: Path) -> dict[str, tuple[int, int, int]]:
    listed = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            there = path.stat()
            listed[path.name] = there.st_ino, there.st_size, there.st_mtime_ns
    return listed
