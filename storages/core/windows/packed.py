"""Rows that are episodes without padding, as those of a ``torch.nn.utils.rnn.PackedSequence``."""

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
        """Return the :class:`Packing` of episodes that begin with transitions (B,)."""
        return pack_episodes(ring, first, self.lengths(first))

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Arrange the fields of steps as those of a ``PackedSequence``."""
        return assemble_packed(ring, gather, steps, fields, self.window_lengths(ring, steps, fields, gamma))


class Packing(NamedTuple):
    """How the N steps of B episodes lie: all first ones, the longest episode's first; all second ones; and so on."""

    transitions: NDArray[np.int64]
    """(N,): their numbers."""
    segments: Segments
    sizes: NDArray[np.int64]
    """(T,): how many episodes have a step t."""
    order: NDArray[np.int64]
    """(B,): the episodes, the longest first."""

    @property
    def learnt_steps(self) -> int:
        """How many steps are learnt from."""
        return len(self.transitions)


def pack_episodes(ring: Ring, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> Packing:
    """The steps of episodes that begin with some transitions (B,) and have some lengths (B,)."""
    order = np.argsort(-lengths, kind="stable")
    shortest_first = lengths[order[::-1]]
    sizes = len(lengths) - np.searchsorted(shortest_first, np.arange(shortest_first[-1]), side="right")
    step = np.repeat(np.arange(len(sizes)), sizes)
    of = order[np.arange(len(step)) - (np.cumsum(sizes) - sizes)[step]]
    segments = Segments(first, first + (lengths - 1) * ring.envs, of)
    return Packing(first[of] + step * ring.envs, segments, sizes, order)


def assemble_packed(
    ring: Ring, gather: Gather, packing: Packing, fields: dict[str, Any], lengths: NDArray[np.int64]
) -> dict[str, Any]:
    """A batch of packed episodes, of the fields of all their steps, (N, ...), without hidden states.

    Args:
        ring: what holds the transitions.
        gather: fetches the hidden states that episodes begin with.
        packing: of the episodes.
        fields: of all steps, in the packing's order.
        lengths: (N,), steps in the n-step window of each.
    """
    unsorted = np.empty_like(packing.order)
    unsorted[packing.order] = np.arange(len(unsorted))
    batch = fields | {
        WINDOW: lengths[:, None],
        EPISODE: packing.segments.of_each(len(lengths))[:, None],
        BATCH_SIZES: packing.sizes,
        SORTED_INDICES: packing.order,
        UNSORTED_INDICES: unsorted,
    }
    if (RHS,) in ring.layout:
        batch[RHS] = gather(packing.segments.first, {RHS})[RHS]
    return batch
