"""Rollback marker, which says that a process was rolling back a directory of episodes.

Write-ahead log and segments cannot be rolled back in one instant. A rollback marker names the checkpoint first, and is
removed last: a process that finds one finishes the rollback.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from storages.errors import DamageError
from storages.persistent.log.commit_log import Position
from storages.persistent.log.json_file import read_verified, write_verified
from storages.persistent.log.records import FORMAT
from storages.persistent.log.system_calls import sync_directory

NAME = "rollback.json"
_WHAT = "where this directory was going back to when its process ended"


def write_marker(folder: Path, state: Mapping[str, Any], durable: bool) -> None:
    """Mark that a directory is being rolled back to a pinned state.

    Raises:
        OSError: it cannot be written; it may be there all the same.
    """
    facts = {"what": _WHAT, "format": FORMAT, "position": dict(state["position"]), "archive": dict(state["archive"])}
    write_verified(folder / NAME, facts, durable)


def read_marker(folder: Path) -> Mapping[str, Any] | None:
    """Read the state that a directory was being rolled back to; None if it was not.

    Raises:
        DamageError: the marker is damaged.
    """
    path = folder / NAME
    try:
        return read_verified(path) if path.exists() else None
    except DamageError:
        raise DamageError(
            f"{path} is damaged: a process was killed while it went back to a checkpoint. "
            f"storages.persistent.repair({str(folder)!r}) drops it"
        ) from None


def remove_marker(folder: Path, durable: bool) -> None:
    """Remove the marker, once the rollback is finished or given up.

    Raises:
        OSError: it cannot be removed, or may be there again after a power cut.
    """
    path = folder / NAME
    if path.exists():
        path.unlink()
    if durable:
        # Also where another call removed it and failed then: a note that comes back undoes what is committed later.
        sync_directory(folder)


class EpisodePosition(TypedDict):
    """A state of a directory of episodes, as plain data."""

    position: Position
    """Commit of the write-ahead log."""
    archive: Position
    """Commit of the log of segments."""


def nothing_on_disk() -> EpisodePosition:
    """Return the position of an empty directory."""
    return {"position": {"commit": 0, "checksum": 0}, "archive": {"commit": 0, "checksum": 0}}
