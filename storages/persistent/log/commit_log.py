"""Log of commits: each record is one commit, chained to the previous one by its checksum.

The write-ahead log of a ring and the log of segments are both of this kind. They share recovery, repair, the positions
by which checkpoints refer to commits, and the deletion of files that no commit needs.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

from storages.errors import PersistenceError
from storages.persistent.log.log_files import EMPTY_LOG, Flaw, LogFiles, LogOffset, refuse_damage
from storages.persistent.log.records import Record, StoredRecord

LARGEST_NUMBER = 1 << 62
"""Exclusive upper bound of commit numbers, row numbers and checksums."""


class Position(TypedDict):
    """Reference to a commit: its number, and the checksum that distinguishes it from another of the same number."""

    commit: int
    checksum: int


class CommitLog:
    """Log of commits in the files of a directory.

    The facts of each record hold ``after`` (the checksum of the previous commit), ``begins`` (whether the commit is a
    full snapshot, which replaces all earlier ones), ``needed`` (the oldest row that the commit needs), and ``pinned``
    (the commits to which checkpoints refer, and the oldest row that each needs). The first record of each file also
    holds the manifest.

    Args:
        directory: directory of the log files.
        suffix: file name suffix.
        durable: fsync every write.
        rows: the word for rows in errors.
        contiguous: whether the rows of each commit must continue those of the previous one without a gap.
        as_of_now: read no further than the present end of each file, because another process may be writing.
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
        """Number after the last row of that commit."""
        self.pinned: list[list[int]] = []
        """Commits to which checkpoints refer, and the oldest row that each needs."""
        self._read_to = EMPTY_LOG
        self._first_rows: list[tuple[int, int]] = []
        """Number and first row of each file."""

    # Reading

    def walk(self, flaw_of: Flaw) -> Iterator[tuple[StoredRecord, LogOffset] | str]:
        """Yield all commits in order with their end offsets, and a description of each damaged or missing part."""
        before: StoredRecord | None = None
        for one in self.files.walk(lambda record: _flaw_of_facts(record) or flaw_of(record)):
            if isinstance(one, str):
                before = None
                yield one
                continue
            found, place = one
            if before is not None and (reason := self._gap(before, found.record)):
                yield f"{self.files.path(place.log_file)} breaks the sequence of commits: {reason}"
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
        """Yield the commits of a newly opened log in order, up to a number; :attr:`position` follows.

        Raises:
            DamageError: a part of the log is damaged or missing; the text names the file and the rows.
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
        """Return the commit of a position, if it needs no row before ``oldest``.

        Raises:
            PersistenceError: the directory does not have the commit, or not all rows that it needs.
            DamageError: the log is damaged.
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
            f"{self._directory} has {there}, but commit {position['commit']}, or a file that it needs, is missing; "
            f"nothing was changed. Restore the directory as it was when the position was taken, or start anew with "
            f"another one"
        )

    def file_of(self, commit: int, needed: int) -> int:
        """Return the number of the oldest file that a commit needs; 0 if it was deleted."""
        return next((number for number, first in reversed(self._first_rows) if number <= commit and first <= needed), 0)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row in the files."""
        return self._first_rows[0][1] if self._first_rows else 0

    def bytes_since(self, needed: int) -> int:
        """Return the bytes of the files that the last commit needs, given the oldest row that it needs."""
        oldest = self.file_of(self.position["commit"], needed)
        return sum(size for number, size in self.files.sizes().items() if number >= oldest)

    # Writing

    def next_facts(self, needed: int, pinned: list[list[int]], begins: bool) -> dict[str, Any]:
        """Return the facts of the next commit that the log itself needs."""
        return {"after": self.position["checksum"], "begins": begins, "needed": needed, "pinned": pinned}

    def is_full(self, most_bytes: int) -> bool:
        """Return whether the next commit begins a new file, because the last one is longer than ``most_bytes``."""
        end = self.files.end
        return end.log_file == 0 or end.offset > most_bytes

    def with_pin(self, needed: int, most: int) -> list[list[int]]:
        """Return the pins with the next commit added, of which the newest ``most`` are kept."""
        return [*self.pinned, [self.position["commit"] + 1, needed]][-most:]

    def append(self, record: Record) -> None:
        """Append a commit, to a new file if it holds the manifest.

        Raises:
            OSError: the write failed; the log is unchanged.
        """
        checksum = self.files.append(record, record.begins_file)
        self.position = {"commit": record.commit, "checksum": checksum}
        self.steps, self.pinned = record.steps, record.facts["pinned"]
        if record.begins_file:
            self._first_rows.append((record.commit, record.first))

    def cut(self) -> None:
        """Truncate the log after the last commit that was replayed."""
        self.files.cut(self._read_to)

    def drop_unneeded(self, needed: int) -> None:
        """Delete the files that neither the last commit nor a pinned one needs.

        A file that cannot be deleted is left for the next call.

        Args:
            needed: number of the oldest row that the last commit needs.
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
    """Return whether a fact is an int in the range that this package writes."""
    return type(value) is int and 0 <= value < LARGEST_NUMBER
