"""A log: blocks in files that are only ever appended to, so that what has served its time is dropped file by file."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from storages.persistent import blocks
from storages.persistent.blocks import Block, Flaw, Found, Image
from storages.persistent.errors import DamageError

_DIGITS = 12


class Place(NamedTuple):
    """The end of a block."""

    segment: int
    """Number of the commit that its file begins with; 0 before the first file."""
    offset: int


BEGINNING = Place(0, 0)
"""Of a log without files."""


class Segments:
    """The files of a log, named by the commits that they begin with.

    Args:
        directory: where they are.
        suffix: of their names.
        durable: whether what is written is to survive a power cut.
    """

    def __init__(self, directory: Path, suffix: str, durable: bool) -> None:
        self._directory, self._suffix, self._durable = directory, suffix, durable
        self._file: int | None = None
        self.end = BEGINNING
        """Where the next block goes."""

    def numbers(self) -> list[int]:
        """Of the files that there are, in their order."""
        return sorted(int(path.stem) for path in self._directory.glob(f"*.{self._suffix}") if path.stem.isdecimal())

    def path(self, segment: int) -> Path:
        """Where a file is."""
        return self._directory / f"{segment:0{_DIGITS}d}.{self._suffix}"

    # Out

    def read(self) -> Iterator[tuple[Found, Place]]:
        """All blocks and where they end, until one that the last file ends before.

        Raises:
            DamageError: what follows is no block, or not the next one; the text names file and steps.
        """
        steps = 0
        for segment, found in self.everything():
            if isinstance(found, Flaw):
                raise DamageError(self.told(segment, found, steps))
            steps = found.block.steps
            yield found, Place(segment, found.end)

    def everything(self) -> Iterator[tuple[int, Found | Flaw]]:
        """All blocks and what is damaged, and the numbers of the files; not what the last file ends before."""
        numbers = self.numbers()
        for segment in numbers:
            for found in blocks.read(self.path(segment)):
                if isinstance(found, Flaw) and found.cut and segment == numbers[-1]:
                    return
                yield segment, found

    def told(self, segment: int, flaw: Flaw, steps: int) -> str:
        """A flaw in words; ``steps`` is the number after the last step before it."""
        after = (found for found in blocks.read(self.path(segment)) if isinstance(found, Found))
        following = next((found.block.first for found in after if found.end > flaw.end), None)
        first = steps if flaw.first is None else flaw.first
        last = following if flaw.steps is None else flaw.steps
        return (
            f"{self.path(segment)} is damaged from byte {flaw.begin} to {flaw.end}, where steps {first} to "
            f"{'its end' if last is None else last} are"
        )

    # In

    def append(self, block: Block | Image, anew: bool) -> int:
        """Write a block, into a new file where ``anew``; returns its checksum.

        Raises:
            OSError: it could not be written; the log is as it was.
        """
        place = Place(block.commit, 0) if anew or self.end.segment == 0 else self.end
        file = self._opened(place)
        try:
            length, checksum = blocks.write(file, block)
            if self._durable:
                _sync_data(file)
            if os.fstat(file).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "it was deleted", str(self.path(place.segment)))
        except BaseException:
            self._undo(file, place)
            raise
        self.end = Place(place.segment, place.offset + length)
        return checksum

    def file_at_end(self) -> int:
        """The file that goes on, opened to append, for a block that does not begin another and is written elsewhere.

        Raises:
            OSError: it cannot be opened.
        """
        assert self.end.segment
        return self._opened(self.end)

    def note_appended(self, block: Image) -> bool:
        """Say that a block was written whole to :meth:`file_at_end`; returns whether it can be found there."""
        assert self._file is not None
        if os.fstat(self._file).st_nlink == 0:
            return False
        self.end = Place(self.end.segment, self.end.offset + len(block.data))
        return True

    def take_back(self, end: Place) -> None:
        """Be as when it ended there, in the file that it ends in."""
        if self._file is not None:
            self._undo(self._file, end)
        self.end = end

    def _opened(self, place: Place) -> int:
        if place == self.end and self._file is not None:
            return self._file
        self.close()
        new = os.O_CREAT if place.offset == 0 else 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | new
        self._file = os.open(self.path(place.segment), flags, 0o644)
        # What was left of a block that failed.
        os.ftruncate(self._file, place.offset)
        if new and self._durable:
            sync_directory(self._directory)
        return self._file

    def _undo(self, file: int, place: Place) -> None:
        """Take back what was written of a block; what cannot be is a block that the file ends before."""
        try:
            if place.offset:
                os.ftruncate(file, place.offset)
            else:
                self.path(place.segment).unlink()
        except OSError:
            pass
        self.close()

    def cut(self, place: Place) -> int:
        """Drop everything after a block's end; returns how many bytes that was."""
        self.close()
        dropped = 0
        # The newest first, so that whatever is left at any instant has no gap.
        for segment in reversed(self.numbers()):
            path = self.path(segment)
            if segment > place.segment:
                dropped += path.stat().st_size
                path.unlink()
            elif segment == place.segment and path.stat().st_size > place.offset:
                dropped += path.stat().st_size - place.offset
                os.truncate(path, place.offset)
        if dropped and self._durable:
            sync_directory(self._directory)
        self.end = place
        return dropped

    def drop_before(self, segment: int) -> None:
        """Delete the files before one; what cannot be deleted stays for the next time."""
        older = [number for number in self.numbers() if number < segment]
        for number in older:
            try:
                self.path(number).unlink()
            except OSError:
                return
        if older and self._durable:
            sync_directory(self._directory)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sync_directory(directory: Path) -> None:
    """Have the names in a directory survive a power cut."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _sync_data(file: int) -> None:
    # Not every system has the quicker one.
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(file)
