"""Counts of the draws of each stored transition, and sums of their importance weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from storages.core.parts import RingObserver, Rows
from storages.core.ring.ring import Ring
from storages.transition import Array

_BYTES_OF_A_TRANSITION = 8
"""Bytes of a count and a sum of weights."""


class DrawCounter(RingObserver):
    """Counts draws of the transitions in a ring; an overwritten step starts at 0 again.

    Args:
        ring: the ring of the transitions.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        # Transition t is at index t modulo the length, as in the ring.
        self._counts: Array = np.zeros(0, np.uint32)
        self._weights: Array = np.zeros(0, np.float32)

    def count(self, rows: Rows) -> None:
        """Count the rows of a batch that was requested."""
        places = rows.transitions % len(self._counts)
        np.add.at(self._counts, places, np.uint32(1))
        np.add.at(self._weights, places, rows.weights[:, 0])

    def counted(self) -> dict[str, torch.Tensor]:
        """Return how often each stored transition was drawn and the sum of its weights, (steps, E) each."""
        ring = self._ring
        shape = (ring.live_steps, ring.envs)
        if not ring.live_steps:
            return {"counts": torch.zeros(shape, dtype=torch.int64), "weights": torch.zeros(shape)}
        live = np.arange(ring.start, ring.end) % len(self._counts)
        counts = self._counts[live].astype(np.int64).reshape(shape)
        return {"counts": torch.from_numpy(counts), "weights": torch.from_numpy(self._weights[live].reshape(shape))}

    # Observer of the ring

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Set the counts of the newest steps to 0."""
        if not len(self._counts):
            self._make_room()
        newest = np.arange(ring.end - steps * ring.envs, ring.end) % len(self._counts)
        self._counts[newest] = 0
        self._weights[newest] = 0

    def after_resize(self, ring: Ring) -> None:
        """Keep the counts of stored transitions."""
        counts, weights, live = self._counts, self._weights, np.arange(ring.start, ring.end)
        self._make_room()
        if len(counts):
            self._counts[live % len(self._counts)] = counts[live % len(counts)]
            self._weights[live % len(self._counts)] = weights[live % len(counts)]

    def after_change(self, ring: Ring) -> None:
        """Reset the counts of a ring that was emptied."""
        if ring.steps == ring.first:
            self._make_room()

    def tensors(self) -> dict[str, Any]:
        """Return the counts, which states hold even where the storage has a directory."""
        return {"draws": self.counted()}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`counted` returned, under "draws" in the state; without it, all counts are 0."""
        self._make_room()
        saved = state.get("draws")
        if saved is not None and ring.live_steps:
            live = np.arange(ring.start, ring.end) % len(self._counts)
            self._counts[live] = saved["counts"].numpy().ravel()
            self._weights[live] = saved["weights"].numpy().ravel()

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._counts.nbytes + self._weights.nbytes

    @property
    def bytes_of_a_transition(self) -> int:
        """Bytes of a count and a sum of weights."""
        return _BYTES_OF_A_TRANSITION

    def _make_room(self) -> None:
        places = self._ring.rows * self._ring.envs
        self._counts, self._weights = np.zeros(places, np.uint32), np.zeros(places, np.float32)
