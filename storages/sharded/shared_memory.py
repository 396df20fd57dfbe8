"""Memory that a learner shares with a shard on the same machine, so that batches need not be sent.

A reply with 32 batches of 256 transitions is 1.5 MB. Written into memory that both processes have mapped for long, it
costs one copy; a message costs several, and page faults for memory that is new each time.
"""

import mmap
import os
import tempfile
import weakref
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from storages.system_calls import open_plain_file

_FOLDER = Path("/dev/shm")
_PREFIX = "pytorchrl-"
_MOST_OPENED = 8


class Place(NamedTuple):
    """Where a shard may write the batches of a reply."""

    path: str
    size: int
    """Its bytes."""


class Piece:
    """A piece of shared memory, made by the learner; it is freed when both processes have dropped it.

    Args:
        size: its bytes.

    Raises:
        OSError: the system has no such memory, or none is left.
    """

    def __init__(self, size: int) -> None:
        if not hasattr(os, "posix_fallocate"):
            raise OSError("this system cannot reserve shared memory")
        file, path = tempfile.mkstemp(prefix=_PREFIX, dir=_FOLDER)
        self._unlink = weakref.finalize(self, _remove, path)
        try:
            # Without it, a process is killed when it writes to memory that turns out not to exist.
            os.posix_fallocate(file, 0, size)
            self.memory = mmap.mmap(file, size)
        finally:
            os.close(file)
        self.place = Place(path, size)
        self.was_used = False
        """Whether the shard has written to it."""

    def mark_as_used(self) -> None:
        """Remove its name, which the shard needs no more, so that nothing is left of it when both processes end."""
        self.was_used = True
        self._unlink()


class OpenedPieces:
    """The pieces that a shard has mapped; those used least recently are dropped first."""

    def __init__(self) -> None:
        self._opened: OrderedDict[str, mmap.mmap] = OrderedDict()

    def memory_at(self, place: Place) -> mmap.mmap | None:
        """Return the memory at a place; None where this process cannot map it, as on another machine."""
        memory = self._opened.pop(place.path, None)
        if memory is None:
            memory = _mapped(place)
        if memory is not None:
            self._opened[place.path] = memory
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
        return memory


def _mapped(place: Place) -> mmap.mmap | None:
    path = Path(place.path)
    if path.parent != _FOLDER or not path.name.startswith(_PREFIX):
        raise ValueError(f"shared memory of a shard must be {_FOLDER}/{_PREFIX}*, got {place.path!r}")
    try:
        file = open_plain_file(path, 0)
    except OSError:
        return None
    try:
        return mmap.mmap(file, place.size) if os.fstat(file).st_size == place.size else None
    finally:
        os.close(file)


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()
