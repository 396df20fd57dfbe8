"""Prefetching of batches by a thread, while the learner computes.

Rows are drawn on the learner's thread, in the order of the batches; only gathering, relabelling and the transfer to
the device are done by the other thread. Batches therefore do not depend on the threads' timing, and are the same as
without prefetching. Compiled copies release the GIL, so they overlap with the learner's Python.

It pays where making a batch takes longer than the hand-over between threads, about 0.05 ms: with frames and long
sequences, and a learner that leaves a processor idle, as one on a GPU does.
"""

from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar
from weakref import WeakMethod

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.transition import Sample

Draw = TypeVar("Draw")
Made = TypeVar("Made")


class Prefetcher(RingObserver, Generic[Draw, Made]):
    """Makes batches before they are requested, and cancels them when their sources change.

    Args:
        restore: a method, called with a draw whose batch was not requested, which restores the random generator to its
            state before the draw. It is weakly referenced.
    """

    def __init__(self, restore: Callable[[Draw], None]) -> None:
        self._restore = WeakMethod(restore)
        self._begun: deque[Draw] = deque()
        """Draws of batches that were begun and not requested yet."""
        self._worker: _Worker[Draw, Made] | None = None
        self.turn: object | None = None
        """Identifies the iterator that owns the batches begun; None where there are none."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Cancel prefetched batches."""
        if self.turn is not None:
            self.cancel()

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Cancel prefetched batches."""
        self.cancel()

    def batches(
        self, draw: Callable[[int], Draw], make: Callable[[Draw], Made], count: int, ahead: int
    ) -> Iterator[tuple[Draw, Made]]:
        """Yield ``count`` draws and the batches made of them.

        Args:
            draw: called with 1 to ``count``, on the caller's thread, ``ahead`` batches before the batch is requested.
            make: called with each draw, in order, on another thread. Its exceptions are raised when the batch is
                requested.
            count: number of batches.
            ahead: number of batches to prefetch, at least 1.
        """
        turn = object()
        try:
            for number in range(1, count + 1):
                if self.turn is not turn:
                    # Another iterator, or a change of the storage, has intervened.
                    self.cancel()
                    self.turn = turn
                if self._worker is None:
                    self._worker = _Worker(make)
                while len(self._begun) <= min(ahead, count - number):
                    self._begun.append(draw(number + len(self._begun)))
                    self._worker.begin(self._begun[-1])
                drawn = self._begun.popleft()
                yield drawn, self._worker.finished()
        finally:
            if self.turn is turn:
                self.cancel()

    @property
    def oldest(self) -> Draw | None:
        """The draw of the next batch, if it is prefetched."""
        return self._begun[0] if self._begun else None

    def cancel(self) -> None:
        """Drop batches that were not requested, undo their draws, and join the thread."""
        if self.turn is None:
            return
        begun, self._begun, self.turn = self._begun, deque(), None
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        restore = self._restore()
        if begun and restore is not None:
            restore(begun[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no thread and no prefetched batches.
        self.cancel()
        return Prefetcher, (self._restore(),)


class _Worker(Generic[Draw, Made]):
    """A thread that applies a function to a queue of arguments.

    It uses plain queues, because an executor's futures take as long as making a batch of small observations.

    Args:
        make: the function.
    """

    def __init__(self, make: Callable[[Draw], Made]) -> None:
        self._make = make
        self._draws: SimpleQueue[Draw | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._stopped = False
        self._thread = Thread(target=self._run, name="batches ahead", daemon=True)
        self._thread.start()

    def begin(self, draw: Draw) -> None:
        """Queue an argument."""
        self._draws.put(draw)

    def finished(self) -> Made:
        """Wait for the next result in order, and return it, or raise its exception."""
        made, error = self._finished.get()
        if error is not None:
            raise error
        finished: Made = made
        return finished

    def stop(self) -> None:
        """End the thread after the current call; drop the remaining arguments."""
        self._stopped = True
        self._draws.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (draw := self._draws.get()) is not None and not self._stopped:
            try:
                self._finished.put((self._make(draw), None))
            except BaseException as error:
                self._finished.put((None, error))
