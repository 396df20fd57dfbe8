"""Log of commits: each record is a commit, and names the one before it.

The rows of a ring and the segments of episodes are kept in such a log. Recovery and repair walk it in the same way,
checkpoints refer to its commits by the same positions, and files that no commit needs are deleted by the same rule.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

from storages.errors import PersistenceError
from storages.persistent.log.log_files import EMPTY_LOG, Flaw, LogFiles, LogOffset, refuse_damage
from storages.persistent.log.records import Record, StoredRecord

LARGEST_NUMBER = 1 << 62
"""Numbers of commits, rows and checksums are smaller."""


class Position(TypedDict):
    """A commit, as plain data: its number, and the checksum that tells it from another of the same number."""

    commit: int
    checksum: int


class CommitLog:
    """Commits in the files of a directory.

    The facts of each record say what it is as a commit: ``after`` (the checksum of the one before), ``begins`` (whether
    it replaces what was committed before), ``needed`` (the oldest row that it needs), and ``pinned`` (the commits that
    checkpoints refer to, and the oldest row that each needs). The first record of each file also holds the manifest.

    Args:
        directory: where the files are.
        suffix: of their names.
        durable: sync what is written.
        rows: the word for rows in errors.
        contiguous: whether the rows of a commit follow those of the one before, or numbers may be left out.
        as_of_now: read only what the files hold now, because another process may be writing.
    """

    def __init__(
        self,
        directory: Path,
        suffix: str,
        durable: bool,
        *,
        rows: str = "steps",
        contiguous: bool = True,
        as_of_now: bool = False,
    ) -> None:
        self.files = LogFiles(directory, suffix, durable, rows=rows, as_of_now=as_of_now)
        self._directory, self._rows, self._contiguous = directory, rows, contiguous
        self.position: Position = {"commit": 0, "checksum": 0}
        """The last commit that was read or written."""
        self.steps = 0
        """Number after its last row."""
        self.pinned: list[list[int]] = []
        """Commits that checkpoints refer to, and the oldest row that each needs."""
        self._read_to = EMPTY_LOG
        self._first_rows: list[tuple[int, int]] = []
        """The number of each file, and its first row."""

    # Out

    def walk(self, flaw_of: Flaw) -> Iterator[tuple[StoredRecord, LogOffset] | str]:
        """Yield all commits in order with their ends, and between them, in words, what is damaged or missing there."""
        before: StoredRecord | None = None
        for one in self.files.walk(lambda record: _flaw_of_facts(record) or flaw_of(record)):
            if isinstance(one, str):
                before = None
                yield one
                continue
            found, place = one
            if before is not None and (reason := self._gap(before, found.record)):
                yield f"{self.files.path(place.log_file)} does not follow: {reason}"
            before = found
            yield one

    def _gap(self, before: StoredRecord, record: Record) -> str | None:
        last = before.record
        if record.commit != last.commit + 1:
            return (
                f"it has commit {record.commit}, and the one before it in the directory is {last.commit}; a file with "
                f"{self._rows} {last.steps} to {record.first} is missing"
            )
        if record.facts["after"] != before.checksum:
            return (
                f"commit {record.commit} was made after another commit {last.commit}; one of the two files was "
                f"replaced by another version of it"
            )
        if self._contiguous and not record.facts["begins"] and record.first != last.steps:
            return f"{self._rows} {record.first} to {record.steps} do not follow {last.steps}"
        return None

    def replay(self, flaw_of: Flaw, until: int | None = None) -> Iterator[Record]:
        """Read commits in order, up to a number; the log, which is new, stands at each as it is read.

        Raises:
            DamageError: something is damaged or missing; the text names file and rows.
        """
        for found, place in refuse_damage(self.walk(flaw_of)):
            record = found.record
            if until is not None and record.commit > until:
                return
            if place.log_file not in (number for number, _ in self._first_rows[-1:]):
                self._first_rows.append((place.log_file, record.first))
            self.position = {"commit": record.commit, "checksum": found.checksum}
            self.steps, self.pinned, self._read_to = record.steps, record.facts["pinned"], place
            yield record

    def commit_at(self, position: Position, oldest: int) -> Record:
        """Return a commit that can be restored, because it needs no row before the oldest one that is still there.

        Raises:
            PersistenceError: the directory does not have it.
            DamageError: something of the log is not what was written.
        """
        numbers: list[int] = []
        for found, _ in self.files.read():
            numbers.append(found.record.commit)
            if (found.record.commit, found.checksum) == (position["commit"], position["checksum"]):
                if found.record.facts["needed"] >= oldest:
                    return found.record
                break
        there = f"commits {numbers[0]} to {numbers[-1]}" if numbers else "no commits"
        raise PersistenceError(
            f"{self._directory} has {there}, and not the commit {position['commit']} that is asked for, or not what it "
            f"needs any more; nothing was changed. Name the directory as it was when the position was taken, or start "
            f"anew with another one"
        )

    def file_of(self, commit: int, needed: int) -> int:
        """Return the number of the oldest file that a commit needs; 0 if it is gone."""
        return next((number for number, first in reversed(self._first_rows) if number <= commit and first <= needed), 0)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that the files hold."""
        return self._first_rows[0][1] if self._first_rows else 0

    def bytes_since(self, needed: int) -> int:
        """Bytes of the files that the last commit needs, whose oldest row has this number."""
        oldest = self.file_of(self.position["commit"], needed)
        return sum(size for number, size in self.files.sizes().items() if number >= oldest)

    # In

    def next_facts(self, needed: int, pinned: list[list[int]], begins: bool) -> dict[str, Any]:
        """Return the facts of the next commit as a commit."""
        return {"after": self.position["checksum"], "begins": begins, "needed": needed, "pinned": pinned}

    def is_full(self, most_bytes: int) -> bool:
        """Whether the next commit begins a file, the last one being longer than this."""
        end = self.files.end
        return end.log_file == 0 or end.offset > most_bytes

    def with_pin(self, needed: int, most: int) -> list[list[int]]:
        """Return the pinned commits, of which there may be so many, if the next one is pinned too."""
        return [*self.pinned, [self.position["commit"] + 1, needed]][-most:]

    def append(self, record: Record) -> None:
        """Append a commit, to a new file if it has the manifest.

        Raises:
            OSError: it could not be written; the log is as it was.
        """
        checksum = self.files.append(record, record.begins_file)
        self.position = {"commit": record.commit, "checksum": checksum}
        self.steps, self.pinned = record.steps, record.facts["pinned"]
        if record.begins_file:
            self._first_rows.append((record.commit, record.first))

    def cut(self) -> None:
        """Drop what is newer than the commit to which the log was read."""
        self.files.cut(self._read_to)

    def drop_unneeded(self, needed: int) -> None:
        """Delete the files that neither the last commit nor a pinned one needs; ``needed`` is the former's.

        What cannot be deleted stays for the next time.
        """
        kept = [[self.position["commit"], needed], *self.pinned]
        oldest = min(self.file_of(commit, row) for commit, row in kept)
        with suppress(OSError):
            self.files.delete_before(oldest)
        self._first_rows = [(number, first) for number, first in self._first_rows if number >= oldest]


def _flaw_of_facts(record: Record) -> str | None:
    facts = record.facts
    begins, needed, after, pinned = (facts.get(name) for name in ("begins", "needed", "after", "pinned"))
    if type(begins) is not bool or not is_number(needed) or not needed <= record.steps < LARGEST_NUMBER:
        return f"{needed!r} as the oldest that it needs"
    if not is_number(after):
        return "no checksum of the commit before it"
    if not isinstance(pinned, list) or not all(
        isinstance(pin, list) and len(pin) == 2 and all(map(is_number, pin)) for pin in pinned
    ):
        return f"{pinned!r} as commits that checkpoints refer to"
    return None


def is_number(value: Any) -> TypeGuard[int]:
    """Whether a fact is a number that this package writes."""
    return type(value) is int and 0 <= value < LARGEST_NUMBER
