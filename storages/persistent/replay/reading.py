"""Looking into a storage's directory without making the storage."""

from pathlib import Path
from typing import Any

from storages.core.ring.ring import Ring
from storages.errors import PersistenceError
from storages.persistent.log.closing_note import refuse_missing
from storages.persistent.log.commit_log import CommitLog, Position
from storages.persistent.log.files import read_beside_a_writer, refuse_links_in
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.log_files import LogFiles
from storages.persistent.replay.recovery import recover
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.write_ahead_log import ERRORS_OF_STEPS, ERRORS_SUFFIX, STEPS_SUFFIX


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
    ring, state, here = read_ring(directory, position)
    if state is None or position not in (None, here):
        raise PersistenceError(
            f"{Path(directory).absolute()} does not have commit {(position or here)['commit']}, or not any more"
        )
    return {"ring": ring.state_dict()} | state


def read_ring(directory: str | Path, position: Position | None = None) -> tuple[Ring, dict[str, Any] | None, Position]:
    """Return the ring of a directory, the state beside it and the commit; as :func:`read_state`."""
    folder = Path(directory).absolute()
    return read_beside_a_writer(folder, lambda: _read_ring(folder, position))


def _read_ring(folder: Path, position: Position | None) -> tuple[Ring, dict[str, Any] | None, Position]:
    manifest = RingManifest.read(folder)
    if manifest is None:
        raise PersistenceError(f"{folder} holds no storage")
    refuse_links_in(folder)
    with name_damage(folder):
        # In this order: the errors of all steps that are there now are on disk already.
        steps = CommitLog(folder, STEPS_SUFFIX, durable=False, as_of_now=True)
        errors = LogFiles(folder, ERRORS_SUFFIX, durable=False, rows=ERRORS_OF_STEPS, as_of_now=True)
        ring = manifest.ring(folder.name, steps.files.nbytes)
        state, _ = recover(ring, steps, errors, None if position is None else position["commit"])
        if position is None:
            refuse_missing(folder, steps)
    return ring, state, steps.position
