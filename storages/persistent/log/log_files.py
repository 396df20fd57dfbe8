"""Append-only files of a log, each of which is deleted once none of its records is needed."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from storages.errors import DamageError
from storages.persistent.log import records as blocks
from storages.persistent.log.records import CorruptRange, Record, StoredRecord
from storages.system_calls import open_file, sync_data, sync_directory

_DIGITS = 12
Flaw = Callable[[Record], str | None]
"""Validates a record: returns a description of what is invalid, or None."""


class LogOffset(NamedTuple):
    """Offset of the end of a record in a log."""

    log_file: int
    """Number of the file, which is that of its first commit; 0 before the first file."""
    offset: int
    """Bytes from the beginning of the file."""


EMPTY_LOG = LogOffset(0, 0)
"""Offset in a log without files."""


class LogFiles:
    """The files of a log, each named after the number of its first commit.

    Args:
        directory: directory of the files.
        suffix: file name suffix.
        durable: fsync every write.
        rows: the word for rows in errors.
        as_of_now: read no further than the present end of each file, because another process may be writing.
    """

    def __init__(
        self, directory: Path, suffix: str, durable: bool, *, rows: str = "steps", as_of_now: bool = False
    ) -> None:
        self._directory, self._suffix, self._durable, self._rows = directory, suffix, durable, rows
        self._sizes = {n: self.path(n).stat().st_size for n in self.numbers()} if as_of_now else None
        self._file: int | None = None
        self._leftovers: list[LogOffset] = []
        """Offsets to which files are truncated before the next write; a file with offset 0 is deleted."""
        self.end = EMPTY_LOG
        """Offset at which the next record is appended."""

    def numbers(self) -> list[int]:
        """Return the numbers of the files, in order."""
        name = re.compile(rf"([0-9]{{{_DIGITS}}})\.{self._suffix}")
        return sorted(int(match[1]) for path in self._directory.iterdir() if (match := name.fullmatch(path.name)))

    def sizes(self) -> dict[int, int]:
        """Return the size in bytes of each file that exists now, by its number."""
        sizes = {}
        for number in self.numbers():
            with suppress(FileNotFoundError):
                sizes[number] = self.path(number).stat().st_size
        return sizes

    def path(self, log_file: int) -> Path:
        """Return the path of a file."""
        return self._directory / f"{log_file:0{_DIGITS}d}.{self._suffix}"

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum((self.sizes() if self._sizes is None else self._sizes).values())

    # Reading

    def read(self, flaw_of: Flaw = lambda record: None) -> Iterator[tuple[StoredRecord, LogOffset]]:
        """Read all records and their end offsets, up to a torn tail of the last file.

        Raises:
            DamageError: a record is damaged; the text names the file and the rows.
        """
        return refuse_damage(self.walk(flaw_of))

    def walk(self, flaw_of: Flaw = lambda record: None) -> Iterator[tuple[StoredRecord, LogOffset] | str]:
        """Yield all records in order with their end offsets, and a description of each damaged part.

        A torn tail of the last file ends the walk, and is not damage.
        """
        numbers = self.numbers() if self._sizes is None else list(self._sizes)
        steps = 0
        for log_file in numbers:
            for found in self._read_file(log_file):
                if isinstance(found, CorruptRange):
                    if found.cut and log_file == numbers[-1]:
                        return
                    yield self._describe(log_file, found, steps)
                    continue
                record, steps = found.record, found.record.steps
                if flaw := flaw_of(record):
                    yield (
                        f"{self.path(log_file)} is damaged, or was not written by this package: commit "
                        f"{record.commit}, with {self._rows} {record.first} to {record.steps}, has {flaw}"
                    )
                else:
                    yield found, LogOffset(log_file, found.end)

    def _read_file(self, log_file: int) -> Iterator[StoredRecord | CorruptRange]:
        return blocks.read(self.path(log_file), None if self._sizes is None else self._sizes[log_file])

    def _describe(self, log_file: int, corrupt: CorruptRange, steps: int) -> str:
        """Describe a corrupt range; ``steps`` is the number after the last row before it."""
        after = (found for found in self._read_file(log_file) if isinstance(found, StoredRecord))
        following = next((found.record.first for found in after if found.end > corrupt.end), None)
        first = steps if corrupt.first is None else corrupt.first
        last = following if corrupt.steps is None else corrupt.steps
        return (
            f"{self.path(log_file)} is damaged from byte {corrupt.begin} to {corrupt.end}, where {self._rows} {first} "
            f"to {'its end' if last is None else last} are"
        )

    # Writing

    def append(self, record: Record, new_file: bool) -> int:
        """Append a record, to a new file if ``new_file``; return its checksum.

        Raises:
            OSError: the write failed; the log is unchanged.
        """
        if self._file is not None and os.fstat(self._file).st_size > self.end.offset:
            # Another program has appended to the file; a record behind its bytes could not be recovered.
            self._leftovers.append(self.end)
        self._drop_leftovers()
        place = LogOffset(record.commit, 0) if new_file or self.end.log_file == 0 else self.end
        try:
            file = self._opened(place)
            length, checksum = blocks.write(file, record)
            if self._durable:
                sync_data(file)
            end = LogOffset(place.log_file, place.offset + length)
            self._refuse_unless_there(file, end)
        except BaseException:
            self._try_to_drop(place)
            raise
        self.end = end
        return checksum

    def undo_write(self, end: LogOffset) -> None:
        """Truncate the file, or delete the new file, that was written after an offset.

        If that fails, it is retried before the next write.
        """
        place = end if end.log_file == self.end.log_file else LogOffset(self.end.log_file, 0)
        self.end = end
        self._try_to_drop(place)

    def cut(self, place: LogOffset) -> None:
        """Truncate the log at an offset, and delete the files after it."""
        # The newest first, so that a crash leaves a log without a gap.
        newer = [number for number in reversed(self.numbers()) if number > place.log_file]
        self.end = place
        self._leftovers = [*(LogOffset(number, 0) for number in newer), *([place] if place.log_file else [])]
        self._drop_leftovers()
        if self._durable:
            self._sync_all()

    def _opened(self, place: LogOffset) -> int:
        if place == self.end and self._file is not None:
            self._refuse_unless_there(self._file, place)
            return self._file
        self.close()
        # O_EXCL: a new file must not exist yet, not even as a link.
        new = os.O_CREAT | os.O_EXCL if place.offset == 0 else 0
        file = _open_to_append(self.path(place.log_file), new)
        try:
            self._refuse_unless_there(file, place)
            if new and self._durable:
                sync_directory(self._directory)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _refuse_unless_there(self, file: int, end: LogOffset) -> None:
        there = os.fstat(file)
        if there.st_nlink and there.st_size == end.offset:
            return
        path = str(self.path(end.log_file))
        if there.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was deleted", path)
        if there.st_size < end.offset:
            raise FileNotFoundError(errno.ENOENT, "it was truncated", path)
        raise FileExistsError(errno.EEXIST, "something else has written to it", path)

    def _try_to_drop(self, place: LogOffset) -> None:
        self._leftovers = [*self._leftovers, place]
        # It is retried before the next write.
        with suppress(OSError):
            self._drop_leftovers()

    def _drop_leftovers(self) -> None:
        """Delete or truncate the files of :attr:`_leftovers`."""
        if not self._leftovers:
            return
        self.close()
        while self._leftovers:
            place = self._leftovers[0]
            path = self.path(place.log_file)
            if place.offset == 0:
                path.unlink(missing_ok=True)
                if self._durable:
                    sync_directory(self._directory)
            elif path.stat().st_size > place.offset:
                file = _open_to_append(path)
                try:
                    os.ftruncate(file, place.offset)
                    if self._durable:
                        sync_data(file)
                finally:
                    os.close(file)
            self._leftovers.pop(0)

    def _sync_all(self) -> None:
        """Fsync all files: they may have been written by a process that was killed before its fsync."""
        for number in self.numbers():
            file = open_file(self.path(number), os.O_RDONLY)
            try:
                sync_data(file)
            finally:
                os.close(file)
        sync_directory(self._directory)

    def delete_before(self, log_file: int) -> None:
        """Delete the files before ``log_file``, the oldest first."""
        for number in self.numbers():
            if number < log_file:
                self.path(number).unlink()
                if self._durable:
                    # After each file, so that a power cut cannot restore a file without those after it.
                    sync_directory(self._directory)

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def refuse_damage(
    found: Iterator[tuple[StoredRecord, LogOffset] | str],
) -> Iterator[tuple[StoredRecord, LogOffset]]:
    """Yield the records of a walk, and raise an error at the first damage.

    Raises:
        DamageError: with the description of the damage.
    """
    for one in found:
        if isinstance(one, str):
            raise DamageError(one)
        yield one


def _open_to_append(path: Path, flags: int = 0) -> int:
    # No symbolic link is followed, because the directory may come from another person.
    return open_file(path, os.O_WRONLY | os.O_APPEND | flags)
