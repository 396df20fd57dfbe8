"""A log: blocks in files that are only ever appended to, so that what has served its time is dropped file by file."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from storages.errors import DamageError
from storages.persistent.log import records as blocks
from storages.persistent.log.records import Block, Flaw, Found, Image
from storages.persistent.log.system_calls import open_file, sync_data, sync_directory

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
        as_of_now: whether to read no more than there is now, as another process may be writing.
    """

    def __init__(self, directory: Path, suffix: str, durable: bool, as_of_now: bool = False) -> None:
        self._directory, self._suffix, self._durable = directory, suffix, durable
        self._sizes = {n: self.path(n).stat().st_size for n in self.numbers()} if as_of_now else None
        self._file: int | None = None
        self._leftovers: list[Place] = []
        """Where files are to end that may be longer, or are not to be there (0), before anything is written."""
        self.end = BEGINNING
        """Where the next block goes."""

    def numbers(self) -> list[int]:
        """Of the files that there are, in their order."""
        name = re.compile(rf"([0-9]{{{_DIGITS}}})\.{self._suffix}")
        return sorted(int(match[1]) for path in self._directory.iterdir() if (match := name.fullmatch(path.name)))

    def sizes(self) -> dict[int, int]:
        """Bytes of each of the files that there are now."""
        sizes = {}
        for number in self.numbers():
            with suppress(FileNotFoundError):
                sizes[number] = self.path(number).stat().st_size
        return sizes

    def path(self, segment: int) -> Path:
        """Where a file is."""
        return self._directory / f"{segment:0{_DIGITS}d}.{self._suffix}"

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum((self.sizes() if self._sizes is None else self._sizes).values())

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
        numbers = self.numbers() if self._sizes is None else list(self._sizes)
        for segment in numbers:
            for found in self._blocks(segment):
                if isinstance(found, Flaw) and found.cut and segment == numbers[-1]:
                    return
                yield segment, found

    def _blocks(self, segment: int) -> Iterator[Found | Flaw]:
        return blocks.read(self.path(segment), None if self._sizes is None else self._sizes[segment])

    def told(self, segment: int, flaw: Flaw, steps: int) -> str:
        """A flaw in words; ``steps`` is the number after the last step before it."""
        after = (found for found in self._blocks(segment) if isinstance(found, Found))
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
        if self._file is not None and os.fstat(self._file).st_size > self.end.offset:
            # Another program has appended to the file; no record may follow what recovery cannot read.
            self._leftovers.append(self.end)
        self._drop_leftovers()
        place = Place(block.commit, 0) if anew or self.end.segment == 0 else self.end
        try:
            file = self._opened(place)
            length, checksum = blocks.write(file, block)
            if self._durable:
                sync_data(file)
            end = Place(place.segment, place.offset + length)
            self._refuse_unless_there(file, end)
        except BaseException:
            self._try_to_drop(place)
            raise
        self.end = end
        return checksum

    def take_back(self, end: Place) -> None:
        """Drop what was written after the end of a block, in its file or as the first of a new one.

        What cannot be dropped now is dropped before anything else is written.
        """
        place = end if end.segment == self.end.segment else Place(self.end.segment, 0)
        self.end = end
        self._try_to_drop(place)

    def cut(self, place: Place) -> int:
        """Drop everything after the end of a block; returns how many bytes that was.

        Raises:
            OSError: not everything could be dropped.
        """
        # The newest first, so that what is left at any instant has no gap.
        newer = [number for number in reversed(self.numbers()) if number > place.segment]
        dropped = sum(self.path(number).stat().st_size for number in newer)
        if place.segment:
            dropped += max(0, self.path(place.segment).stat().st_size - place.offset)
        self.end = place
        self._leftovers = [*(Place(number, 0) for number in newer), *([place] if place.segment else [])]
        self._drop_leftovers()
        if self._durable:
            self._sync_all()
        return dropped

    def _opened(self, place: Place) -> int:
        if place == self.end and self._file is not None:
            self._refuse_unless_there(self._file, place)
            return self._file
        self.close()
        # A file that is to be new must not be there, so no link to another is followed.
        new = os.O_CREAT | os.O_EXCL if place.offset == 0 else 0
        file = _open_to_append(self.path(place.segment), new)
        try:
            self._refuse_unless_there(file, place)
            if new and self._durable:
                sync_directory(self._directory)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return file

    def _refuse_unless_there(self, file: int, end: Place) -> None:
        there = os.fstat(file)
        if there.st_nlink and there.st_size == end.offset:
            return
        path = str(self.path(end.segment))
        if there.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "it was deleted", path)
        if there.st_size < end.offset:
            raise FileNotFoundError(errno.ENOENT, "it was made shorter", path)
        raise FileExistsError(errno.EEXIST, "something else has written to it", path)

    def _try_to_drop(self, place: Place) -> None:
        self._leftovers = [*self._leftovers, place]
        # What fails is tried again before anything else is written.
        with suppress(OSError):
            self._drop_leftovers()

    def _drop_leftovers(self) -> None:
        """Delete or shorten the files of :attr:`_leftovers`."""
        if not self._leftovers:
            return
        self.close()
        while self._leftovers:
            place = self._leftovers[0]
            path = self.path(place.segment)
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
        """What was read may have been written by a process that did not live to sync it."""
        for number in self.numbers():
            file = open_file(self.path(number), os.O_RDONLY)
            try:
                sync_data(file)
            finally:
                os.close(file)
        sync_directory(self._directory)

    def drop_before(self, segment: int) -> None:
        """Delete the files before one, the oldest first; what cannot be deleted stays for the next time."""
        with suppress(OSError):
            self.delete_before(segment)

    def delete_before(self, segment: int) -> None:
        """Delete the files before one, the oldest first.

        Raises:
            OSError: not all of them could be deleted.
        """
        for number in self.numbers():
            if number < segment:
                self.path(number).unlink()
                if self._durable:
                    # One after the other, so that a power cut brings none back without those after it.
                    sync_directory(self._directory)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def _open_to_append(path: Path, flags: int = 0) -> int:
    # No link is followed: the directory may be from somebody else.
    return open_file(path, os.O_WRONLY | os.O_APPEND | flags)
