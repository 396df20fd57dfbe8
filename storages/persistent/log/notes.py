"""Notes beside a log: what a directory held when its storage was closed, and a rollback that is not finished.

By the first, a missing end is noticed later. A killed process leaves no such note, or an earlier one, which is still a
lower bound of what has to be there.

The two logs of a directory of episodes cannot be rolled back in one instant. A rollback marker names the checkpoint
first, and is removed last: a process that finds one finishes the rollback.
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
from storages.persistent.log.system_calls import sync_directory

NAME, MARKER_NAME = "closed.json", "rollback.json"
_WHAT = "what this directory held when it was last closed"
_WHAT_MARKER = "where this directory was going back to when its process ended"


@dataclass(frozen=True)
class ClosingNote:
    """Content of a directory.

    Args:
        position: the last commit.
        steps: number after the last row.
        files: bytes of each file, by its name.
        errors: checksum of the file of cold priorities; None where there is none.
    """

    position: Position
    steps: int
    files: dict[str, int]
    errors: int | None

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the note of a directory; return None if there is none.

        Raises:
            PersistenceError: it is of another format.
            DamageError: it is not what was written.
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
        """Describe what a directory lacks whose commits were read; return None if that is nothing."""
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
    """Write the note of a directory, if there was a commit; without it nothing is lost, so that it may fail.

    Args:
        folder: the directory.
        log: its commits.
        durable: whether the note is to survive a power cut.
        errors: checksum of the file of cold priorities; None where there is none.
    """
    if not log.position["commit"]:
        return
    with suppress(OSError):
        files = {log.files.path(number).name: size for number, size in log.files.sizes().items()}
        facts: dict[str, Any] = {"what": _WHAT, "format": FORMAT, "commit": log.position["commit"], "steps": log.steps}
        facts |= {"commit_checksum": log.position["checksum"], "files": files, "errors": errors}
        write_verified(folder / NAME, facts, durable)


def refuse_missing(folder: Path, log: CommitLog) -> None:
    """Refuse a directory that lacks what it held when it was last closed.

    Args:
        folder: the directory.
        log: its commits, all of which were read.

    Raises:
        DamageError: something is missing; the text names it.
    """
    closed = ClosingNote.read(folder)
    if closed is not None and (missing := closed.missing(folder, log)):
        raise DamageError(missing)


def remove_note(folder: Path, durable: bool) -> None:
    """Remove the note, before anything that it names is dropped."""
    path = folder / NAME
    if path.exists():
        path.unlink()
        if durable:
            sync_directory(folder)


def write_marker(folder: Path, state: Mapping[str, Any], durable: bool) -> None:
    """Mark that a directory is being rolled back to a pinned state.

    Raises:
        OSError: it cannot be written; it may be there all the same.
    """
    facts = {
        "what": _WHAT_MARKER,
        "format": FORMAT,
        "position": dict(state["position"]),
        "archive": dict(state["archive"]),
    }
    write_verified(folder / MARKER_NAME, facts, durable)


def read_marker(folder: Path) -> Mapping[str, Any] | None:
    """Read the state that a directory was being rolled back to; None if it was not.

    Raises:
        DamageError: the marker is damaged.
    """
    path = folder / MARKER_NAME
    try:
        return read_verified(path) if path.exists() else None
    except DamageError:
        with name_repair(folder, "drops it"):
            raise DamageError(f"{path} is damaged: a process was killed while it went back to a checkpoint") from None


def remove_marker(folder: Path, durable: bool) -> None:
    """Remove the marker, once the rollback is finished or given up.

    Raises:
        OSError: it cannot be removed, or may be there again after a power cut.
    """
    path = folder / MARKER_NAME
    if path.exists():
        path.unlink()
    if durable:
        # Also where another call removed it and failed then: a note that comes back undoes what is committed later.
        sync_directory(folder)
