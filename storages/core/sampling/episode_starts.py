"""Index of the first transitions of the episodes that may be drawn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels import episode_rows as kernel
from storages.core.parts import TransitionList
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.sequence_settings import Episodes
from storages.transition import DONE, DONE2, TRUNC2, Array

_FEWEST_PLACES = 64
BYTES_OF_A_TRANSITION = 16
"""Most memory per transition, where each is an episode: 12 for the starts, 4 for those of half of the ring, added."""


class EpisodeStarts:
    """The starts of the episodes in a ring that may be drawn, initialised from the ring's contents.

    Args:
        ring: the ring of the transitions; its layout must be known.
        index: index of the ring's episodes, updated before this one.
        episodes: which episodes are drawn.
    """

    def __init__(self, ring: Ring, index: EpisodeIndex, episodes: Episodes) -> None:
        self._ring, self._index = ring, index
        self._whole = episodes.whole
        self._longest = kernel.ENDLESS if episodes.longest is None else episodes.longest
        self._flags = self._flags_of(ring)
        self._added, self._moved = np.empty(ring.envs, np.int64), np.empty(ring.envs, np.int64)
        self._num_added, self._num_moved = 0, 0
        # The valid part is between the bounds: free room after it, dropped starts before it.
        self._starts = np.empty(self._room_for(ring.live_transitions), np.int64)
        self._bounds = np.zeros(2, np.int64)
        self._add_all(ring.oldest)

    def inserted(self, steps: int) -> None:
        """Add the newest steps, at most half of the ring; one at a time if not ``whole``."""
        ring, most = self._ring, steps * self._ring.envs
        self._make_room(most)
        if most > len(self._added):
            self._added = np.empty(most, np.int64)
        self._num_added, self._num_moved = self._add(ring.steps - steps, self._added)

    def ended(self, envs: NDArray[np.int64]) -> None:
        """Add the episodes of some environments that were truncated after their newest steps were inserted."""
        self._num_added = self._num_moved = 0
        if not self._whole:
            return
        ring, step, longest = self._ring, self._ring.steps - 1, self._longest
        begun = self._index.first[step % ring.rows, envs]
        starts = step - (step - begun) % longest
        # A piece of full length was added at its last step.
        whole = (starts >= ring.oldest) & (step - starts + 1 < longest)
        whole &= (starts > begun) | self._flags[0][starts % ring.rows, envs]
        added = (starts * ring.envs + envs)[whole]
        self._num_added = len(added)
        self._added[: len(added)] = added
        self._make_room(len(added))
        numbers = np.sort(np.append(self.numbers, added))
        self._bounds[1] += len(added)
        self.numbers[:] = numbers

    def put(self, begin: int) -> None:
        """Add the steps from ``begin`` on, which were loaded into the ring, and drop those that it dropped.

        Both must be whole episodes; the index must be up to date.
        """
        ring = self._ring
        if begin == ring.oldest:
            self._bounds[:] = 0
        self._bounds[0] += np.searchsorted(self.numbers, ring.start)
        steps = np.arange(begin, ring.steps)
        since = steps[:, None] - self._index.first[steps % ring.rows]
        self._make_room(int(np.count_nonzero(since % self._longest == 0)))
        self._add_all(begin)

    # Queries

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(N,): the first transitions of the episodes, in increasing order; a view."""
        return self._starts[self._bounds[0] : self._bounds[1]]

    @property
    def added(self) -> NDArray[np.int64]:
        """Starts added by the newest steps; a view."""
        return self._added[: self._num_added]

    @property
    def moved(self) -> NDArray[np.int64]:
        """Starts that moved to the next step, because the newest one overwrote their step; a view."""
        return self._moved[: self._num_moved]

    def since(self, first: int) -> NDArray[np.int64]:
        """Return the starts (N,) at transition ``first`` or later, in increasing order; a view.

        The newest start if all are earlier; the stored starts of running episodes if none may be drawn yet.
        """
        numbers, ring = self.numbers, self._ring
        if not len(numbers):
            return np.sort(self._starts_of(np.arange(ring.end - ring.envs, ring.end)))
        return numbers[np.searchsorted(numbers, self.first_candidate(first)) :]

    def first_candidate(self, first: int) -> int:
        """Return ``first``, or the newest start if that is earlier."""
        return min(first, int(self._starts[self._bounds[1] - 1])) if len(self.numbers) else first

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (B,), whether each transition is one of the starts."""
        return TransitionList(self.numbers).among(transitions)

    def lengths(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers (B,) of stored steps of the episodes, or pieces, that begin at some transitions."""
        ring = self._ring
        steps, envs = np.divmod(starts, ring.envs)
        left = self._longest - (steps - self._index.first[steps % ring.rows, envs]) % self._longest
        lengths: NDArray[np.int64] = np.minimum((self._index.last_of(starts) - starts) // ring.envs + 1, left)
        return lengths

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._starts.nbytes + self._added.nbytes + self._moved.nbytes

    # Internals

    def __getstate__(self) -> dict[str, Any]:
        # Views of the ring's columns; a copy needs those of the copied ring.
        return {name: value for name, value in self.__dict__.items() if name != "_flags"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._flags = self._flags_of(self._ring)

    @staticmethod
    def _flags_of(ring: Ring) -> tuple[Array, Array, Array]:
        """Return (rows, E) each: whether an episode begins, terminates or is truncated at a step."""
        begins, terminated, truncated = (ring.columns.data(key)[..., 0] for key in (DONE, DONE2, TRUNC2))
        return begins, terminated, truncated

    def _starts_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (B,), the oldest live transition of each one's piece."""
        ring = self._ring
        steps, envs = np.divmod(transitions, ring.envs)
        begins = steps - (steps - self._index.first[steps % ring.rows, envs]) % self._longest
        starts: NDArray[np.int64] = np.maximum(begins, ring.oldest) * ring.envs + envs
        return starts

    def _add_all(self, begin: int) -> None:
        self._add(begin, np.empty((self._ring.steps - begin) * self._ring.envs, np.int64))

    def _add(self, begin: int, added: NDArray[np.int64]) -> tuple[int, int]:
        """Add the starts from a step on; return the numbers of new and of moved ones."""
        ring, places = self._ring, (self._starts, self._bounds)
        steps = (begin, ring.steps, ring.oldest, self._index.first)
        if self._whole:
            return kernel.add_whole(*steps, *self._flags, self._longest, *places, added), 0
        return kernel.add_parts(*steps, self._longest, *places, added, self._moved)

    def _make_room(self, more: int) -> None:
        if self._bounds[1] + more <= len(self._starts):
            return
        numbers = self.numbers
        if self._whole:
            numbers = numbers[np.searchsorted(numbers, self._ring.start) :]
        self._starts = np.empty(self._room_for(len(numbers) + more), np.int64)
        self._starts[: len(numbers)] = numbers
        self._bounds[:] = 0, len(numbers)

    def _room_for(self, starts: int) -> int:
        """Return the number of places for some starts: twice as many, or half of the ring more if that is less."""
        return min(max(_FEWEST_PLACES, 2 * starts), starts + self._ring.size * self._ring.envs // 2)
