"""Batches ahead of the learner: while it computes with one, a thread makes the next.

What a batch is made of is drawn on the learner's own thread, in the order of the batches, and only the work that
follows from it (gathering, relabelling, the way to the device) is left to the thread. So nothing depends on which of
the two is faster: the same random numbers make the same batches as without the thread. Copying is compiled and does not
hold the interpreter's lock, so that it overlaps with the learner's own Python.

It pays where a batch takes longer to make than to hand over, some 0.05 ms: frames and long sequences, beside a learner
that leaves a processor idle, as one on a GPU does.
"""

from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar
from weakref import WeakMethod

Draw = TypeVar("Draw")
Made = TypeVar("Made")


class Ahead(Generic[Draw, Made]):
    """Batches that are made before they are asked for, and taken back when what they are made of changes.

    Args:
        put_back: a method, called with a draw that nobody will see, to make all be as before it was drawn. Whoever it
            is of is not kept alive by it.
    """

    def __init__(self, put_back: Callable[[Draw], None]) -> None:
        self._put_back = WeakMethod(put_back)
        self._begun: deque[Draw] = deque()
        """What is being made, or was, and nobody has asked for yet."""
        self._maker: _Maker[Draw, Made] | None = None
        self._turn: object | None = None
        """Stands for the iterator whose batches these are."""

    def batches(
        self, draw: Callable[[int], Draw], make: Callable[[Draw], Made], count: int, ahead: int
    ) -> Iterator[tuple[Draw, Made]]:
        """``count`` batches and what they were drawn as, each when it is asked for.

        Args:
            draw: called with 1 to ``count``, on the caller's thread; the batch after ``ahead`` others is drawn when the
                first of these is asked for.
            make: called with what was drawn, in that order, on another thread. What it raises is raised where its batch
                is asked for.
            count: of the batches.
            ahead: how many batches are made while the caller uses one, at least 1.
        """
        turn = object()
        try:
            for number in range(1, count + 1):
                if self._turn is not turn:
                    # Another iterator, or a change of what is stored, came between.
                    self.take_back()
                    self._turn = turn
                if self._maker is None:
                    self._maker = _Maker(make)
                while len(self._begun) <= min(ahead, count - number):
                    self._begun.append(draw(number + len(self._begun)))
                    self._maker.begin(self._begun[-1])
                drawn = self._begun.popleft()
                yield drawn, self._maker.finished()
        finally:
            if self._turn is turn:
                self.take_back()

    @property
    def oldest(self) -> Draw | None:
        """What the next batch was drawn as, if it was already."""
        return self._begun[0] if self._begun else None

    def take_back(self) -> None:
        """Be as if no batch had been begun that nobody has asked for; the thread is gone when this returns."""
        if self._turn is None:
            return
        begun, self._begun, self._turn = self._begun, deque(), None
        if self._maker is not None:
            self._maker.stop()
            self._maker = None
        put_back = self._put_back()
        if begun and put_back is not None:
            put_back(begun[0])


class _Maker(Generic[Draw, Made]):
    """A thread that makes one thing after the other.

    Two plain queues: an executor's futures take as long as a batch of small observations.

    Args:
        make: what it calls.
    """

    def __init__(self, make: Callable[[Draw], Made]) -> None:
        self._make = make
        self._draws: SimpleQueue[Draw | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._stopped = False
        self._thread = Thread(target=self._run, name="batches ahead", daemon=True)
        self._thread.start()

    def begin(self, draw: Draw) -> None:
        """Have something made, after all that was begun before."""
        self._draws.put(draw)

    def finished(self) -> Made:
        """The oldest thing that was begun and not fetched yet, as soon as it is made; or what went wrong with it."""
        made, error = self._finished.get()
        if error is not None:
            raise error
        finished: Made = made
        return finished

    def stop(self) -> None:
        """Wait until nothing is being made; what was not begun never is."""
        self._stopped = True
        self._draws.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (draw := self._draws.get()) is not None and not self._stopped:
            try:
                self._finished.put((self._make(draw), None))
            except BaseException as error:
                self._finished.put((None, error))
