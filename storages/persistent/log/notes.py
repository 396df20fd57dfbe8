"""Closing note and rollback marker: two small files beside the logs of a directory.

The closing note records what a directory held when its storage was closed, so that a missing end of a log is detected.
A killed process leaves no note, or an earlier one, which is still a lower bound of what must be there.

The two logs of a directory of episodes cannot be rolled back in one atomic operation. A rollback marker, which names
the checkpoint, is therefore written first and removed last: a process that finds one finishes the rollback.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from storages.errors import DamageError
from storages.persistent.log.commit_log import CommitLog, Position, is_number
from storages.persistent.log.json_file import name_damage, name_repair, read_verified, write_verified
from storages.persistent.log.records import FORMAT
from storages.system_calls import sync_directory

NAME, MARKER_NAME = "closed.json", "rollback.json"
_WHAT = "what this directory held when it was last closed"
_WHAT_MARKER = "where this directory was going back to when its process ended"


@dataclass(frozen=True)
class ClosingNote:
    """Content of a directory at the time when its storage was closed.

    Args:
        position: the last commit.
        steps: number after the last row.
        files: size of each log file in bytes, by its name.
        errors: checksum of the file of cold priorities; None if there is none.
    """

    position: Position
    steps: int
    files: dict[str, int]
    errors: int | None

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the note of a directory; return None if there is none.

        Raises:
            PersistenceError: the note has another format version.
            DamageError: the note is damaged.
        """
        path = folder / NAME
        if not path.exists():
            return None
        with name_damage(path):
            facts = read_verified(path)
            position: Position = {"commit": facts["commit"], "checksum": facts["commit_checksum"]}
            files, errors = facts["files"], facts["errors"]
            numbers = [*position.values(), facts["steps"], *files.values(), 0 if errors is None else errors]
            if not all(map(is_number, numbers)) or any(Path(name).name != name for name in files):
                raise ValueError(f"{position} and files {files!r}")
            return cls(position, facts["steps"], files, errors)

    @property
    def commit(self) -> int:
        """Number of the last commit."""
        return self.position["commit"]

    def missing(self, folder: Path, log: CommitLog) -> str | None:
        """Describe what is missing from a directory, whose log was replayed; return None if nothing is."""
        last, then = log.position["commit"], self.commit
        if last > then:
            return None
        gone = f", so that commits {last + 1} to {then} are gone" if last < then else ""
        gone += f", with steps {log.steps} to {self.steps}" if log.steps < self.steps else ""
        if (shorter := self.shorter(folder)) is not None:
            return f"{shorter}{gone}"
        if log.position != self.position:
            return (
                f"{folder} ends with commit {last}, and ended with another one of number {then} when the storage was "
                f"closed{gone}: a file was replaced by another version of it"
            )
        return None

    def shorter(self, folder: Path) -> str | None:
        """Describe the first file that is missing or shorter than it was; return None if there is none."""
        for name, size in self.files.items():
            path = folder / name
            there = path.stat().st_size if path.exists() else None
            if there is None or there < size:
                now = "is missing" if there is None else f"has {there} bytes"
                return f"{path} {now}, and had {size} when the storage was closed"
        return None


def write_note(folder: Path, log: CommitLog, durable: bool, errors: int | None = None) -> None:
    """Write the closing note of a directory, if there was a commit.

    An OSError is ignored, because no data depend on the note.

    Args:
        folder: the directory.
        log: its log.
        durable: fsync the note.
        errors: checksum of the file of cold priorities; None if there is none.
    """
    if not log.position["commit"]:
        return
    with suppress(OSError):
        files = {log.files.path(number).name: size for number, size in log.files.sizes().items()}
        facts: dict[str, Any] = {"what": _WHAT, "format": FORMAT, "commit": log.position["commit"], "steps": log.steps}
        facts |= {"commit_checksum": log.position["checksum"], "files": files, "errors": errors}
        write_verified(folder / NAME, facts, durable)


def refuse_missing(folder: Path, log: CommitLog) -> None:
    """Refuse a directory that has lost commits since it was last closed.

    Args:
        folder: the directory.
        log: its log, which was replayed to its end.

    Raises:
        DamageError: commits or files are missing; the text names them.
    """
    closed = ClosingNote.read(folder)
    if closed is not None and (missing := closed.missing(folder, log)):
        raise DamageError(missing)


def remove_note(folder: Path, durable: bool) -> None:
    """Remove the closing note; call this before anything that it names is dropped."""
    path = folder / NAME
    if path.exists():
        path.unlink()
        if durable:
            sync_directory(folder)


def write_marker(folder: Path, state: Mapping[str, Any], durable: bool) -> None:
    """Write the marker of a rollback to a pinned state.

    Raises:
        OSError: the write failed; the marker may exist nevertheless.
    """
    facts = {
        "what": _WHAT_MARKER,
        "format": FORMAT,
        "position": dict(state["position"]),
        "archive": dict(state["archive"]),
    }
    write_verified(folder / MARKER_NAME, facts, durable)


def read_marker(folder: Path) -> Mapping[str, Any] | None:
    """Read the position of an unfinished rollback; return None if there is none.

    Raises:
        DamageError: the marker is damaged.
    """
    path = folder / MARKER_NAME
    try:
        return read_verified(path) if path.exists() else None
    except DamageError:
        with name_repair(folder, "drops it"):
            raise DamageError(f"{path} is damaged: a process was killed while it rolled back to a checkpoint") from None


def remove_marker(folder: Path, durable: bool) -> None:
    """Remove the marker of a rollback that is finished or was given up.

    Raises:
        OSError: it cannot be removed, or the removal may not survive a power cut.
    """
    path = folder / MARKER_NAME
    if path.exists():
        path.unlink()
    if durable:
        # Also if an earlier call removed the marker but could not sync: a marker that reappears undoes later commits.
        sync_directory(folder)
