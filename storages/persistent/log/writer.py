"""A thread that writes bytes to files without the interpreter: nothing that it does holds up the one that inserts.

To hand work to a thread that runs Python, and to hear that it is done, takes longer than to copy fifty kilobytes to the
system's cache: each time that thread wants the interpreter's lock, the other one gives it up and has to get it back.
This one sleeps, and writes, in compiled code, and the two speak through pipes.
"""

import os
from collections.abc import Callable, Sequence
from threading import Thread
from typing import NamedTuple

import numpy as np

from storages.core.kernels import write as kernel
from storages.core.kernels.memory import data_address

_NO_FILE = -1


class _Pipes(NamedTuple):
    orders: int
    give_order: int
    reports: int
    give_report: int


class Writer:
    """Writes bytes, one order at a time.

    It belongs to the process that started it: another that was forked off has to leave it alone.

    Args:
        failed: called by the thread as soon as something could not be written.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed
        self._desk = np.zeros(kernel.DESK, np.int64)
        self._pipes: _Pipes | None = None
        self._thread: Thread | None = None
        self._data: Sequence[bytes] = ()
        """What the order is about, held until it is done."""

    def start(self) -> None:
        """Start the thread, if it is not there.

        Raises:
            OSError: what is compiled now cannot be kept for the next time, or there can be no more files.
        """
        if self._pipes is None:
            address = data_address(self._desk)
            # Whatever has to be compiled is compiled here, where an error is heard; none of this does anything.
            kernel.give_order(_NO_FILE, address)
            kernel.take_report(_NO_FILE, address)
            kernel.report(_NO_FILE, address, kernel.FAILED)
            kernel.write_as_told(_NO_FILE, _NO_FILE, address)
            self._pipes = _Pipes(*os.pipe(), *os.pipe())
            # A thread in compiled code cannot be asked to end when the interpreter does, and need not be.
            self._thread = Thread(target=self._run, args=(self._pipes,), name="journal", daemon=True)
            self._thread.start()

    def begin(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Have bytes written to the ends of open files, those after others only once these are written whole.

        :meth:`start` must have been called.

        Args:
            pieces: files, opened to append, and the bytes; ``MOST_PIECES`` at most.
        """
        pipes = self._pipes
        assert pipes is not None
        assert len(pieces) <= kernel.MOST_PIECES
        order = [len(pieces)]
        for file, data in pieces:
            order += file, data_address(np.frombuffer(data, np.uint8)), len(data)
        self._data = [data for _, data in pieces]
        self._give(pipes, order)

    def finish(self) -> bool:
        """Wait until what was begun is done; returns whether all of it was written.

        Whoever interrupts this, or :meth:`begin`, by Ctrl-C, can call it again. It may say then that something was not
        written that was.
        """
        desk, pipes = self._desk, self._pipes
        written = pipes is not None and bool(desk[kernel.GIVEN] > desk[kernel.REPORTED])
        while pipes is not None and desk[kernel.GIVEN] > desk[kernel.REPORTED]:
            kernel.take_report(pipes.reports, data_address(desk))
        self._data = ()
        return written and bool(desk[kernel.REPORT] == kernel.WRITTEN)

    def close(self) -> None:
        """End the thread, once what was begun is done."""
        pipes = self._pipes
        if pipes is None:
            return
        assert self._thread is not None
        self._give(pipes, [kernel.STOP])
        self._thread.join()
        for end in pipes:
            os.close(end)
        self._pipes, self._thread, self._data = None, None, ()

    def _give(self, pipes: _Pipes, order: Sequence[int]) -> None:
        self._desk[kernel.ORDER : kernel.ORDER + len(order)] = order
        kernel.give_order(pipes.give_order, data_address(self._desk))

    def _run(self, pipes: _Pipes) -> None:
        desk = np.zeros(kernel.DESK, np.int64)
        address = data_address(desk)
        while kernel.write_as_told(pipes.orders, pipes.give_report, address) == kernel.FAILED:
            self._failed()
            kernel.report(pipes.give_report, address, kernel.FAILED)
