"""Maintenance of a ring's episode index, from the first insertion on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.episode_starts import BYTES_OF_A_TRANSITION, EpisodeStarts
from storages.sequence_settings import Episodes


class EpisodeTracker(RingObserver):
    """Maintains the index of a ring's episodes, and the starts of those that may be drawn.

    Args:
        ring: the ring of the transitions.
        episodes: which episodes are drawn; None where rows are not episodes.
    """

    def __init__(self, ring: Ring, episodes: Episodes | None) -> None:
        self._ring, self._episodes = ring, episodes
        self._index: EpisodeIndex | None = None
        self._starts: EpisodeStarts | None = None

    @property
    def index(self) -> EpisodeIndex:
        """Start and end of each episode; available from the first insertion on."""
        assert self._index is not None
        return self._index

    @property
    def starts(self) -> EpisodeStarts:
        """Starts of the episodes that may be drawn; available from the first insertion on."""
        assert self._starts is not None
        return self._starts

    @property
    def is_built(self) -> bool:
        """Whether the index exists."""
        return self._index is not None

    def build(self, begun: NDArray[np.int64] | None = None) -> None:
        """Index the stored steps; for ``begun`` see :attr:`EpisodeIndex.begun`."""
        self._index = EpisodeIndex(self._ring, begun)
        if self._episodes is not None:
            self._starts = EpisodeStarts(self._ring, self._index, self._episodes)

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Index the newest steps."""
        if self._index is None:
            self.build()
            return
        self._index.put(ring.steps - steps)
        if self._starts is not None:
            self._starts.inserted(steps)

    def after_end(self, ring: Ring, envs: NDArray[np.int64]) -> None:
        """Add the episodes that can be drawn from now on."""
        if self._starts is not None:
            self._starts.ended(envs)

    def after_resize(self, ring: Ring) -> None:
        """Rebuild the index."""
        if self._index is not None:
            self.build(self._index.begun)

    def steps_at_once(self, ring: Ring) -> int:
        """Return half of the ring for whole episodes; starts of partly overwritten ones are updated step by step."""
        if self._episodes is None:
            return ring.size
        return max(1, ring.size // 2) if self._episodes.whole else 1

    def replaced(self, begin: int) -> None:
        """Index the steps from ``begin`` on, which replaced others in a ring of whole episodes."""
        if self._index is not None:
            self._index.put(begin)
            if self._starts is not None:
                self._starts.put(begin)

    def state_dict(self) -> dict[str, Any]:
        """Return the first steps of the episodes that contain the oldest stored step."""
        return {"episodes_begun": None if self._index is None else self._index.begun.tolist()}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Index the stored steps; without a saved index, episodes are taken to begin at the oldest step."""
        self._index = self._starts = None
        if self._ring.layout:
            begun = state.get("episodes_begun")
            self.build(None if begun is None else np.array(begun, np.int64))

    @property
    def bytes_of_a_transition(self) -> int:
        """Most bytes per transition of the index and the starts."""
        of_the_index = 2 * np.dtype(np.int64).itemsize
        return of_the_index + (0 if self._episodes is None else BYTES_OF_A_TRANSITION)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(part.nbytes for part in (self._index, self._starts) if part is not None)
