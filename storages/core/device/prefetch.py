"""Prefetching: while the learner computes with one batch, a thread makes the next.

Rows are drawn on the learner's thread, in the order of the batches; only the work that follows from them (gathering,
relabelling, the transfer to the device) is left to the other thread. Batches therefore do not depend on which thread is
faster, and are the same as without prefetching. The compiled copies do not hold the interpreter's lock, so they overlap
with the learner's Python.

It pays where making a batch takes longer than the hand-over between threads, some 0.05 ms: frames and long sequences,
beside a learner that leaves a processor idle, as one on a GPU does.
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
    """Makes batches before they are asked for, and cancels them when what they are made of changes.

    Args:
        restore: a method, called with a draw whose batch was not asked for, which restores the random generator to its
            state before the draw. The prefetcher keeps no reference to the method's object.
    """

    def __init__(self, restore: Callable[[Draw], None]) -> None:
        self._restore = WeakMethod(restore)
        self._begun: deque[Draw] = deque()
        """Batches that were begun and not asked for yet."""
        self._worker: _Worker[Draw, Made] | None = None
        self.turn: object | None = None
        """Identifies the iterator to which batches that were begun belong; None where there are none."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Cancel."""
        if self.turn is not None:
            self.cancel()

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Cancel."""
        self.cancel()

    def batches(
        self, draw: Callable[[int], Draw], make: Callable[[Draw], Made], count: int, ahead: int
    ) -> Iterator[tuple[Draw, Made]]:
        """Yield ``count`` draws and the batches made of them.

        Args:
            draw: called with 1 to ``count``, on the caller's thread; the batch after ``ahead`` others is drawn when the
                first of these is asked for.
            make: called with each draw, in order, on another thread. Its exceptions are raised where the batch is asked
                for.
            count: number of batches.
            ahead: how many batches are made while the caller uses one, at least 1.
        """
        turn = object()
        try:
            for number in range(1, count + 1):
                if self.turn is not turn:
                    # Another iterator, or a change of what is stored, came between.
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
        """The draw of the next batch, if it was drawn already."""
        return self._begun[0] if self._begun else None

    def cancel(self) -> None:
        """Drop batches that were not asked for, and undo their draws; the thread has ended when this returns."""
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
        # A copy has no thread, and nothing that was begun.
        self.cancel()
        return Prefetcher, (self._restore(),)


class _Worker(Generic[Draw, Made]):
    """A thread that calls a function with one argument after the other.

    It uses plain queues, because the futures of an executor take as long as a batch of small observations.

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
        """Wait for the oldest result that was not fetched, and return it, or raise its exception."""
        made, error = self._finished.get()
        if error is not None:
            raise error
        finished: Made = made
        return finished

    def stop(self) -> None:
        """End the thread after the call that is running; drop the other arguments."""
        self._stopped = True
        self._draws.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (draw := self._draws.get()) is not None and not self._stopped:
            try:
                self._finished.put((self._make(draw), None))
            except BaseException as error:
                self._finished.put((None, error))
