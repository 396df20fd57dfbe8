"""Rows that are packed episodes, as in a ``torch.nn.utils.rnn.PackedSequence``."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Gather, Segments
from storages.core.ring.ring import Ring
from storages.core.windows.segments import EpisodeWindow
from storages.transition import (
    BATCH_SIZES,
    EPISODE,
    RHS,
    SORTED_INDICES,
    UNSORTED_INDICES,
    WINDOW,
)


class PackedWindow(EpisodeWindow):
    """Whole episodes without padding."""

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`Packing` of episodes that begin at transitions (B,)."""
        lengths = self.lengths(first)
        order = np.argsort(-lengths, kind="stable")
        shortest_first = lengths[order[::-1]]
        sizes = len(lengths) - np.searchsorted(shortest_first, np.arange(shortest_first[-1]), side="right")
        step = np.repeat(np.arange(len(sizes)), sizes)
        of = order[np.arange(len(step)) - (np.cumsum(sizes) - sizes)[step]]
        segments = Segments(first, first + (lengths - 1) * ring.envs, of)
        return Packing(first[of] + step * ring.envs, segments, sizes, order)

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Add the fields of a ``PackedSequence`` to those of steps, which are in packed order already."""
        lengths = self.window_lengths(ring, steps, fields, gamma)
        unsorted = np.empty_like(steps.order)
        unsorted[steps.order] = np.arange(len(unsorted))
        batch = fields | {
            WINDOW: lengths[:, None],
            EPISODE: steps.segments.of_each(len(lengths))[:, None],
            BATCH_SIZES: steps.sizes,
            SORTED_INDICES: steps.order,
            UNSORTED_INDICES: unsorted,
        }
        if (RHS,) in ring.layout:
            batch[RHS] = gather(steps.segments.first, {RHS})[RHS]
        return batch


class Packing(NamedTuple):
    """The N steps of B episodes in packed order: all first steps, longest episode first; all second ones; and so on."""

    transitions: NDArray[np.int64]
    """(N,): numbers of their transitions."""
    segments: Segments
    sizes: NDArray[np.int64]
    """(T,): number of episodes that have a step t."""
    order: NDArray[np.int64]
    """(B,): the episodes, the longest first."""

    @property
    def learnt_steps(self) -> int:
        """Number of steps that are learnt from."""
        return len(self.transitions)
