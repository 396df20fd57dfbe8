"""Batches ahead of the learner: while it computes with one, a thread makes the next.

What a batch is made of is drawn on the learner's own thread, in the order of the batches, and only the work that
follows from it (gathering, relabelling, the way to the device) is left to the thread. So nothing depends on which of
the two is faster: the same random numbers make the same batches as without the thread. Copying is compiled and does not
hold the interpreter's lock, so that it overlaps with the learner's own Python.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

Draw = TypeVar("Draw")
Made = TypeVar("Made")


class _Pending(NamedTuple, Generic[Draw, Made]):
    """A batch that nobody has asked for yet."""

    draw: Draw
    made: "Future[Made]"


class Ahead(Generic[Draw, Made]):
    """Batches that are made before they are asked for, and taken back when what they are made of changes.

    Args:
        put_back: called with a draw that nobody will see, to make all be as before it was drawn.
    """

    def __init__(self, put_back: Callable[[Draw], None]) -> None:
        self._put_back = put_back
        self._pending: deque[_Pending[Draw, Made]] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._turn: object | None = None
        """Stands for the iterator that the pending batches are of."""

    def batches(
        self, draw: Callable[[int], Draw], make: Callable[[Draw], Made], count: int, ahead: int
    ) -> Iterator[tuple[Draw, Made]]:
        """``count`` batches and what they were drawn as, each when it is asked for.

        Args:
            draw: called with 1 to ``count``, on the caller's thread; the batch after ``ahead`` others is drawn when the
                first of these is asked for.
            make: called with what was drawn, in that order, on another thread unless ``ahead`` is 0. What it raises is
                raised where its batch is asked for.
            count: of the batches.
            ahead: how many batches are made while the caller uses one.
        """
        turn, ahead = object(), min(ahead, count - 1)
        try:
            for number in range(1, count + 1):
                if self._turn is not turn:
                    # Another iterator, or a change of what is stored, came between.
                    self.take_back()
                    self._turn = turn
                if ahead == 0:
                    drawn = draw(number)
                    yield drawn, make(drawn)
                    continue
                while len(self._pending) <= min(ahead, count - number):
                    self._begin(draw(number + len(self._pending)), make)
                drawn, made = self._pending.popleft()
                yield drawn, made.result()
        finally:
            if self._turn is turn:
                self.take_back()

    @property
    def oldest(self) -> Draw | None:
        """What the next batch was drawn as, if it was already."""
        return self._pending[0].draw if self._pending else None

    def take_back(self) -> None:
        """Be as if no batch had been begun that nobody has asked for; the thread is gone when this returns."""
        pending, self._pending, self._turn = self._pending, deque(), None
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        if pending:
            self._put_back(pending[0].draw)

    def _begin(self, draw: Draw, make: Callable[[Draw], Made]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "batches ahead")
        self._pending.append(_Pending(draw, self._thread.submit(make, draw)))
