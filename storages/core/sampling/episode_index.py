"""The episodes that a ring holds: where the one of a transition begins and ends."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.episode_rows import OPEN, add_steps
from storages.core.ring.ring import Ring


class EpisodeIndex:
    """Kept beside a ring whose number of environments is known; what it holds already is taken up.

    An episode reaches from its oldest live step to its end, to where its stream broke off, or to the newest step.

    Args:
        ring: what holds the transitions.
        begun: (E,) int64, see :attr:`begun`; the oldest step where None.
    """

    def __init__(self, ring: Ring, begun: NDArray[np.int64] | None = None) -> None:
        self._ring = ring
        self.first = np.zeros((ring.rows, ring.envs), np.int64)
        """(rows, E): the step in which the episode of a row began, be it live or not."""
        self.last = np.full((ring.rows, ring.envs), OPEN, np.int64)
        """(rows, E): the step which it ended or broke off with, OPEN while it goes on."""
        second = min(ring.oldest + 1, ring.steps)
        self._add(ring.oldest, second)
        if begun is not None:
            self.first[ring.oldest % ring.rows] = begun
        self._add(second, ring.steps)

    def put(self, begin: int) -> None:
        """Take up the steps from one on, which were put into the ring behind what it still holds."""
        self._add(begin, self._ring.steps)

    def first_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B,): the oldest live transition of the episode of each."""
        steps, envs = np.divmod(transitions, self._ring.envs)
        first = np.maximum(self.first[steps % self._ring.rows, envs], self._ring.oldest)
        numbers: NDArray[np.int64] = first * self._ring.envs + envs
        return numbers

    def last_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B,): the last transition of the episode of each, the newest where it goes on."""
        steps, envs = np.divmod(transitions, self._ring.envs)
        last = self.last[steps % self._ring.rows, envs]
        return np.where(last == OPEN, self._ring.steps - 1, last) * self._ring.envs + envs

    @property
    def begun(self) -> NDArray[np.int64]:
        """(E,): the steps in which the episodes that hold the oldest live step began."""
        begun: NDArray[np.int64] = self.first[self._ring.oldest % len(self.first)].copy()
        return begun

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.first.nbytes + self.last.nbytes

    def _add(self, begin: int, end: int) -> None:
        ring = self._ring
        add_steps(ring.columns.finals.numbers, begin, end, ring.oldest, self.first, self.last)
