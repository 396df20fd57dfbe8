"""Note of what a directory held when its storage was closed, by which a missing end is noticed later.

A killed process leaves no note, or an earlier one, which is still a lower bound of what has to be there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from storages.errors import DamageError
from storages.persistent.log.json_file import name_damage, read_verified, write_verified
from storages.persistent.log.records import FORMAT
from storages.persistent.log.system_calls import sync_directory

NAME = "closed.json"
_WHAT = "what this directory held when it was last closed"


@dataclass(frozen=True)
class ClosingNote:
    """Content of a directory.

    Args:
        commit: number of the last commit.
        checksum: of that.
        steps: number after the last step.
        files: bytes of each file, by its name.
    """

    commit: int
    checksum: int
    steps: int
    files: dict[str, int]

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
            return cls(facts["commit"], facts["commit_checksum"], facts["steps"], facts["files"])

    def write(self, folder: Path, durable: bool) -> None:
        """Write the note to a directory, replacing an earlier one.

        Raises:
            OSError: it cannot be written.
        """
        facts: dict[str, Any] = {"what": _WHAT, "format": FORMAT, "commit": self.commit}
        write_verified(
            folder / NAME, facts | {"commit_checksum": self.checksum, "steps": self.steps, "files": self.files}, durable
        )

    def missing(self, folder: Path, commit: int, checksum: int, steps: int) -> str | None:
        """Describe what is missing; return None if nothing is.

        Args:
            folder: the directory.
            commit: number of the last commit that is there.
            checksum: of that.
            steps: number after its last step.
        """
        if commit > self.commit:
            return None
        gone = f", so that commits {commit + 1} to {self.commit} are gone" if commit < self.commit else ""
        gone += f", with steps {steps} to {self.steps}" if steps < self.steps else ""
        if (shorter := self.shorter(folder)) is not None:
            return f"{shorter}{gone}"
        if (commit, checksum) != (self.commit, self.checksum):
            return (
                f"{folder} ends with commit {commit}, and ended with another one of number {self.commit} when the "
                f"storage was closed{gone}: a file was replaced by another version of it"
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


def refuse_missing(folder: Path, commit: int, checksum: int, steps: int) -> None:
    """Refuse a directory that does not hold what it held when it was last closed; see :meth:`ClosingNote.missing`.

    Raises:
        DamageError: something is missing; the text names it.
    """
    closed = ClosingNote.read(folder)
    if closed is not None and (missing := closed.missing(folder, commit, checksum, steps)):
        raise DamageError(missing)


def remove_note(folder: Path, durable: bool) -> None:
    """Remove the note, before anything that it names is dropped.

    Raises:
        OSError: it cannot be removed.
    """
    path = folder / NAME
    if path.exists():
        path.unlink()
        if durable:
            sync_directory(folder)
