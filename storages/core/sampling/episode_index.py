"""Index of the episodes in a ring: start and end of each transition's episode."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.episode_rows import OPEN, add_steps
from storages.core.ring.ring import Ring


class EpisodeIndex:
    """Index of a ring with a known number of environments, initialised from its contents.

    An episode reaches from its oldest live step to its end, its interruption, or the newest step.

    Args:
        ring: the ring of the transitions.
        begun: (E,) int64, see :attr:`begun`; the oldest step where None.
    """

    def __init__(self, ring: Ring, begun: NDArray[np.int64] | None = None) -> None:
        self._ring = ring
        self.first = np.zeros((ring.rows, ring.envs), np.int64)
        """(rows, E): the first step of each row's episode, which need not be live."""
        self.last = np.full((ring.rows, ring.envs), OPEN, np.int64)
        """(rows, E): the last step of each row's episode, OPEN while it runs."""
        second = min(ring.oldest + 1, ring.steps)
        self._add(ring.oldest, second)
        if begun is not None:
            self.first[ring.oldest % ring.rows] = begun
        self._add(second, ring.steps)

    def put(self, begin: int) -> None:
        """Index the newest steps, from ``begin`` on."""
        self._add(begin, self._ring.steps)

    def first_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (B,), the oldest live transition of each one's episode."""
        steps, envs = np.divmod(transitions, self._ring.envs)
        first = np.maximum(self.first[steps % self._ring.rows, envs], self._ring.oldest)
        numbers: NDArray[np.int64] = first * self._ring.envs + envs
        return numbers

    def last_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (B,), the last transition of each one's episode, the newest one while it runs."""
        steps, envs = np.divmod(transitions, self._ring.envs)
        last = self.last[steps % self._ring.rows, envs]
        return np.where(last == OPEN, self._ring.steps - 1, last) * self._ring.envs + envs

    @property
    def begun(self) -> NDArray[np.int64]:
        """(E,): first steps of the episodes that contain the oldest live step."""
        begun: NDArray[np.int64] = self.first[self._ring.oldest % len(self.first)].copy()
        return begun

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.first.nbytes + self.last.nbytes

    def _add(self, begin: int, end: int) -> None:
        ring = self._ring
        add_steps(ring.columns.finals.numbers, begin, end, ring.oldest, self.first, self.last)
