"""Batches of sequences, time first, put together from the fields of their steps."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.sequence_steps import lay_out
from storages.core.ring.ring import Ring
from storages.core.windows.n_step import Gather
from storages.transition import BURN_IN, DISCOUNT, DONE, LEAD_OUT, MASK, OBS, RHS, RHS2, WINDOW, Array
from storages.windows import Episodes, Sequences


class Runs(NamedTuple):
    """Steps of one environment each, one after the other, that the rows of a batch are of."""

    first: NDArray[np.int64]
    """(B,): numbers of the transitions that they begin with."""
    last: NDArray[np.int64]
    """(B,): numbers of the transitions that they end with."""
    of: NDArray[np.int64] | None = None
    """(N,): which run each row is of; None where row ``i`` is of run ``i % B``."""

    def of_each(self, num_rows: int) -> NDArray[np.int64]:
        """(num_rows,): which run each row is of."""
        return np.arange(num_rows) % len(self.first) if self.of is None else self.of


class Layout(NamedTuple):
    """The steps of sequences (steps, B): those that warm up, those that are learnt from, those that lead out."""

    transitions: NDArray[np.int64]
    """Their numbers."""
    real: NDArray[np.float32]
    """1, or 0 where a step repeats the last real one, or belongs to what follows."""
    anew: NDArray[np.float32]
    """1 where a step does not continue the one before it."""
    learnt: slice
    """Which steps are learnt from."""
    runs: Runs
    learnt_steps: int
    """How many steps are learnt from, in all sequences."""


def laid_out(ring: Ring, first: NDArray[np.int64], sequences: Sequences, lead_out: int) -> Layout:
    """The steps of the sequences that begin with some transitions (B,), and of ``lead_out`` steps after them."""
    burn_in, length = sequences.burn_in, sequences.length
    steps = _steps(ring, first, burn_in, burn_in + length + lead_out, sequences.across_episodes)
    runs = Runs(steps.numbers[0], steps.numbers[-1])
    return Layout(*steps, slice(burn_in, burn_in + length), runs, length * len(first))


def episodes_laid_out(
    ring: Ring, first: NDArray[np.int64], lengths: NDArray[np.int64], episodes: Episodes, lead_out: int
) -> Layout:
    """As :func:`laid_out`, the steps of episodes, or pieces of such, of some lengths (B,).

    What fills a piece up are the steps that follow it, where there are any: n-step windows reach there.
    """
    length = int(lengths.max()) if episodes.longest is None else episodes.longest
    steps = _steps(ring, first, 0, length + lead_out, across_episodes=False)
    steps.real[np.arange(length + lead_out)[:, None] >= lengths] = 0
    runs = Runs(first, first + (lengths - 1) * ring.envs)
    return Layout(*steps, slice(0, length), runs, int(lengths.sum()))


def put_together(
    ring: Ring, gather: Gather, layout: Layout, fields: dict[str, Any], lengths: NDArray[np.int64]
) -> dict[str, Any]:
    """A batch of sequences, of the fields of all their steps.

    Args:
        ring: what holds the transitions.
        gather: fetches the hidden states that sequences begin with.
        layout: of the sequences.
        fields: of all steps, (steps * B, ...), in the layout's order; without hidden states.
        lengths: (steps * B,), steps in the n-step window of each.
    """
    steps, batch_size = layout.transitions.shape
    shape, learnt = (steps, batch_size), layout.learnt
    burn_in = learnt.start
    parts = {key: in_time(value, shape) for key, value in fields.items()}
    parts[DONE] = np.maximum(parts[DONE], layout.anew[..., None])
    batch = {key: _cut(value, learnt) for key, value in parts.items()}
    batch[MASK] = np.ascontiguousarray(layout.real[learnt, :, None])
    batch[WINDOW] = np.ascontiguousarray(lengths.reshape(*shape, 1)[learnt])
    first = {RHS: layout.transitions[burn_in]}
    if burn_in:
        batch[BURN_IN] = {key: _cut(parts[key], slice(0, burn_in)) for key in (OBS, DONE)}
        first[BURN_IN] = layout.transitions[0]
    if steps > learnt.stop:
        batch[LEAD_OUT] = {key: _cut(parts[key], slice(learnt.stop, steps)) for key in (OBS, DONE)}
    if (RHS,) in ring.layout:
        for key, transitions in first.items():
            (batch if key == RHS else batch[key])[RHS] = gather(transitions, {RHS})[RHS]
    return batch


def keys_of_steps(ring: Ring) -> set[str]:
    """The fields that every step of a sequence has: all but hidden states, which only its first step needs."""
    return {path[0] for path in ring.layout} - {RHS, RHS2} | {DISCOUNT}


def in_time(value: Any, shape: tuple[int, ...]) -> Any:
    """(T * B, ...) as (T, B, ...), of an array or a dict of such."""
    if isinstance(value, dict):
        return {name: leaf.reshape(*shape, *leaf.shape[1:]) for name, leaf in value.items()}
    return value.reshape(*shape, *value.shape[1:])


class _Steps(NamedTuple):
    numbers: NDArray[np.int64]
    real: NDArray[np.float32]
    anew: NDArray[np.float32]


def _steps(ring: Ring, first: NDArray[np.int64], before: int, steps: int, across_episodes: bool) -> _Steps:
    shape = (steps, len(first))
    found = _Steps(np.empty(shape, np.int64), np.empty(shape, np.float32), np.empty(shape, np.float32))
    lay_out(first, before, ring.start, ring.end, ring.envs, across_episodes, ring.final_numbers, *found)
    return found


def _cut(value: Any, steps: slice) -> Any:
    if isinstance(value, dict):
        return {name: np.ascontiguousarray(leaf[steps]) for name, leaf in value.items()}
    cut: Array = np.ascontiguousarray(value[steps])
    return cut
