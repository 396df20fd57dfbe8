"""Writing to files in compiled code: a thread that does nothing else never asks for the interpreter's lock."""

from typing import Any

import numpy as np
from numba import types

from storages.core.kernels.compilation import kernel
from storages.core.kernels.memory import int64s_at

MOST_PIECES = 2
GIVEN, REPORTED, REPORT, ORDER = range(4)
"""Of a desk: how many orders were given, and how many reports of them taken; the last report; where an order begins:
how many pieces it has, and of each the file, the address of its bytes, and how many these are."""
ORDER_WORDS = 1 + 3 * MOST_PIECES
DESK = ORDER + ORDER_WORDS
STOP = 0
"""Pieces of the order that is the last."""
WRITTEN, FAILED, STOPPED = range(3)

_WORD_BYTES = 8
_MOST_AT_ONCE_BYTES = 1 << 30
_MOST_FAILURES = 1_000
_SIGNATURE = types.intp(types.int32, types.intp, types.uintp)
_read: Any = types.ExternalFunction("read", _SIGNATURE)
_write: Any = types.ExternalFunction("write", _SIGNATURE)


@kernel
def give_order(orders: int, desk: int) -> None:
    """Give the order that lies on a desk, and count it: no signal comes between the two.

    Args:
        orders: the end of a pipe that it is written to.
        desk: address of ``DESK`` int64.
    """
    words = int64s_at(desk, DESK)
    if _write(np.int32(orders), desk + ORDER * _WORD_BYTES, np.uint64(ORDER_WORDS * _WORD_BYTES)) > 0:
        words[GIVEN] += 1


@kernel
def take_report(reports: int, desk: int) -> None:
    """Wait for a report, lay it on a desk, and count it; or return without one because a signal has come.

    Args:
        reports: the end of a pipe that it is read from.
        desk: address of ``DESK`` int64.
    """
    words = int64s_at(desk, DESK)
    if _read(np.int32(reports), desk + REPORT * _WORD_BYTES, np.uint64(_WORD_BYTES)) > 0:
        words[REPORTED] += 1


@kernel
def report(reports: int, desk: int, said: int) -> None:
    """Write a report to a pipe; ``desk`` is the address of ``DESK`` int64."""
    int64s_at(desk, DESK)[REPORT] = said
    _write(np.int32(reports), desk + REPORT * _WORD_BYTES, np.uint64(_WORD_BYTES))


@kernel
def write_as_told(orders: int, reports: int, desk: int) -> int:
    """Write what orders say, and report each that was done, until one is not.

    The pieces of an order are written one after the other; where one is not written whole, those after it are not
    begun. What went wrong is found out by whoever tries again.

    Args:
        orders: the end of a pipe that they are read from.
        reports: the end of a pipe that reports are written to.
        desk: address of ``DESK`` int64, of this thread's own.

    Returns:
        ``FAILED``, of an order that was not reported; ``STOPPED`` after one without pieces, or where no more can come.
    """
    order, failures = int64s_at(desk + ORDER * _WORD_BYTES, ORDER_WORDS), 0
    while failures < _MOST_FAILURES:
        got = _read(np.int32(orders), desk + ORDER * _WORD_BYTES, np.uint64(ORDER_WORDS * _WORD_BYTES))
        if got < 0:
            # A signal has come.
            failures += 1
            continue
        if got == 0 or order[0] == STOP:
            return STOPPED
        failures = 0
        for piece in range(order[0]):
            file, address, left = order[1 + 3 * piece], order[2 + 3 * piece], order[3 + 3 * piece]
            while left > 0:
                done = _write(np.int32(file), address, np.uint64(min(left, _MOST_AT_ONCE_BYTES)))
                if done <= 0:
                    return FAILED
                address, left = address + done, left - done
        report(reports, desk, WRITTEN)
    return STOPPED
