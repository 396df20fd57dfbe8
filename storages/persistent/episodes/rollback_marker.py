"""A note that a directory of episodes goes back to a checkpoint: journal and archive cannot do so in one instant.

Whoever is killed in between leaves the note, and whoever opens the directory next does the rest.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.errors import DamageError
from storages.persistent.episodes.volume import Record
from storages.persistent.log.json_file import checked_facts, write_facts
from storages.persistent.log.records import FORMAT
from storages.persistent.log.system_calls import sync_directory
from storages.persistent.replay.write_ahead_log import Position

NAME = "going-back.json"
_WHAT = "where this directory was going back to when its process ended"


def write_note(folder: Path, state: Mapping[str, Any], durable: bool) -> None:
    """Say that a directory goes back to a pinned state.

    Raises:
        OSError: it cannot be written; it may be there all the same.
    """
    facts = {"what": _WHAT, "format": FORMAT, "position": dict(state["position"]), "archive": dict(state["archive"])}
    write_facts(folder / NAME, facts, durable)


def read_note(folder: Path) -> Mapping[str, Any] | None:
    """The state that a directory was going back to; None where it was not.

    Raises:
        DamageError: the note is not what was written.
    """
    path = folder / NAME
    try:
        return checked_facts(path) if path.exists() else None
    except DamageError:
        raise DamageError(
            f"{path} is damaged: a process was killed while it went back to a checkpoint. "
            f"storages.persistent.repair({str(folder)!r}) drops it"
        ) from None


def remove_note(folder: Path, durable: bool) -> None:
    """Remove the note, once the directory has gone back or is to stay as it is.

    Raises:
        OSError: it cannot be removed, or may be there again after a power cut.
    """
    path = folder / NAME
    if path.exists():
        path.unlink()
    if durable:
        # Also where another call removed it and failed then: a note that comes back undoes what is committed later.
        sync_directory(folder)


def nothing_on_disk() -> dict[str, Any]:
    """Where in a directory nothing is."""
    record: Record = {"record": 0, "checksum": 0}
    position: Position = {"commit": 0, "checksum": 0}
    return {"position": position, "archive": record}
