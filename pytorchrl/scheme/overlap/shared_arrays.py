"""Arrays in shared memory."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT_BYTES = 64  # a cache line


class ArrayKind(NamedTuple):
    """Dtype and shape of an array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


class SharedArrays:
    """Memory for arrays, shared with processes that are forked after this object was made.

    Its size is set later, by :meth:`make`. It is an anonymous file, so that nothing is left behind however the
    processes end, and it is not limited by the size of ``/dev/shm``.
    """

    _file: int | None = None

    def __init__(self) -> None:
        self._file = _nameless_file()

    def make(self, kinds: Sequence[ArrayKind]) -> list[NDArray[Any]]:
        """Allocate arrays of these kinds, filled with zeros."""
        assert self._file is not None
        os.ftruncate(self._file, _starts(kinds)[-1])
        return self.map(kinds)

    def map(self, kinds: Sequence[ArrayKind]) -> list[NDArray[Any]]:
        """Map the arrays that another process has made; call once in each process."""
        assert self._file is not None
        starts = _starts(kinds)
        memory = mmap.mmap(self._file, starts[-1])
        self.close()
        return [np.ndarray(kind.shape, kind.dtype, memory, start) for kind, start in zip(kinds, starts, strict=False)]

    def close(self) -> None:
        """Close the file descriptor; mapped arrays stay valid."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()


def _starts(kinds: Sequence[ArrayKind]) -> list[int]:
    """Return the offset of each array in bytes, and the total size."""
    starts = [0]
    for kind in kinds:
        starts.append(starts[-1] - -kind.nbytes // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES)
    return [*starts[:-1], max(starts[-1], _ALIGNMENT_BYTES)]


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pytorchrl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
