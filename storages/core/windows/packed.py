"""Batches of episodes without anything that fills up: as the rows of a ``torch.nn.utils.rnn.PackedSequence`` lie."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.windows.n_step import Gather
from storages.core.windows.sequence_batches import Runs
from storages.transition import (
    BATCH_SIZES,
    EPISODE,
    RHS,
    SORTED_INDICES,
    UNSORTED_INDICES,
    WINDOW,
)


class Packing(NamedTuple):
    """How the N steps of B episodes lie: all first ones, the longest episode's first; all second ones; and so on."""

    transitions: NDArray[np.int64]
    """(N,): their numbers."""
    runs: Runs
    sizes: NDArray[np.int64]
    """(T,): how many episodes have a step t."""
    order: NDArray[np.int64]
    """(B,): the episodes, the longest first."""

    @property
    def learnt_steps(self) -> int:
        """How many steps are learnt from."""
        return len(self.transitions)


def packing_of(ring: Ring, first: NDArray[np.int64], lengths: NDArray[np.int64]) -> Packing:
    """The steps of episodes that begin with some transitions (B,) and have some lengths (B,)."""
    order = np.argsort(-lengths, kind="stable")
    shortest_first = lengths[order[::-1]]
    sizes = len(lengths) - np.searchsorted(shortest_first, np.arange(shortest_first[-1]), side="right")
    step = np.repeat(np.arange(len(sizes)), sizes)
    of = order[np.arange(len(step)) - (np.cumsum(sizes) - sizes)[step]]
    runs = Runs(first, first + (lengths - 1) * ring.envs, of)
    return Packing(first[of] + step * ring.envs, runs, sizes, order)


def put_together_packed(
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
        EPISODE: packing.runs.of_each(len(lengths))[:, None],
        BATCH_SIZES: packing.sizes,
        SORTED_INDICES: packing.order,
        UNSORTED_INDICES: unsorted,
    }
    if (RHS,) in ring.layout:
        batch[RHS] = gather(packing.runs.first, {RHS})[RHS]
    return batch
