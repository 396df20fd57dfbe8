"""How often rows of batches began with each stored transition, and with which importance weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from storages.core.parts import RingObserver, Rows
from storages.core.ring.ring import Ring
from storages.transition import Array

_BYTES_OF_A_TRANSITION = 8
"""Of a count and a sum of weights."""


class DrawCounter(RingObserver):
    """Counts draws of the transitions that a ring holds; those of a step that overwrites another begin at 0.

    Args:
        ring: what holds the transitions.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        # Transition t lies at t modulo their length, as its row in the ring does.
        self._counts: Array = np.zeros(0, np.uint32)
        self._weights: Array = np.zeros(0, np.float32)

    def count(self, rows: Rows) -> None:
        """Count the rows of a batch that was asked for."""
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

    # As an observer

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Begin the newest steps at 0."""
        if not len(self._counts):
            self._make_room()
        newest = np.arange(ring.end - steps * ring.envs, ring.end) % len(self._counts)
        self._counts[newest] = 0
        self._weights[newest] = 0

    def after_resize(self, ring: Ring) -> None:
        """Keep the counts of what is stored."""
        counts, weights, live = self._counts, self._weights, np.arange(ring.start, ring.end)
        self._make_room()
        if len(counts):
            self._counts[live % len(self._counts)] = counts[live % len(counts)]
            self._weights[live % len(self._counts)] = weights[live % len(counts)]

    def after_change(self, ring: Ring) -> None:
        """Forget the counts of a ring that was emptied."""
        if ring.steps == ring.first:
            self._make_room()

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`counted` returned, under "draws"; all begin at 0 where nothing was counted."""
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
        """Bytes of its count and the sum of its weights."""
        return _BYTES_OF_A_TRANSITION

    def _make_room(self) -> None:
        places = self._ring.rows * self._ring.envs
        self._counts, self._weights = np.zeros(places, np.uint32), np.zeros(places, np.float32)
