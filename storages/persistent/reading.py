"""Looking into a storage's directory without making the storage."""

from pathlib import Path
from typing import Any

from storages.core.ring import Ring
from storages.persistent.errors import PersistenceError
from storages.persistent.facts import damage_told
from storages.persistent.files import refuse_links_in
from storages.persistent.journal import ERRORS_SUFFIX, STEPS_SUFFIX, Position
from storages.persistent.manifest import Manifest
from storages.persistent.recovery import Recovered, recover
from storages.persistent.segments import Segments


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
    """The transitions of the storage that a directory holds, and where the directory stands; as :func:`read_state`."""
    folder = Path(directory).absolute()
    manifest = Manifest.read(folder)
    if manifest is None:
        raise PersistenceError(f"{folder} holds no storage")
    refuse_links_in(folder)
    steps, errors = (Segments(folder, suffix, durable=False) for suffix in (STEPS_SUFFIX, ERRORS_SUFFIX))
    try:
        with damage_told(folder):
            ring = manifest.ring(folder.name)
            found = recover(ring, steps, errors, None if position is None else position["commit"])
    except FileNotFoundError as error:
        raise PersistenceError(
            f"{error.filename} was dropped while it was read, as newer ones came; try again"
        ) from None
    return ring, found
