"""Joining of batches from several storages, and splitting of joined batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from storages.transition import (
    BATCH_SIZES,
    BURN_IN,
    EPISODE,
    INDICES,
    LEAD_OUT,
    MASK,
    REW,
    RHS,
    SORTED_INDICES,
    SOURCE_SIZES,
    UNSORTED_INDICES,
    WEIGHTS,
    Batch,
)

_OF_ROWS = frozenset({RHS, WEIGHTS, INDICES})
"""Fields with one entry for each sequence or episode instead of each step."""
_OF_PACKING = frozenset({BATCH_SIZES, SORTED_INDICES, UNSORTED_INDICES, EPISODE})


def with_constants(batch: Batch, constants: Mapping[str, tuple[int, float]]) -> Batch:
    """Return a batch with those fields that it lacks: for each the numbers of a row, and the value of all of them."""
    reward = batch[REW]
    lacking = {key: constant for key, constant in constants.items() if key not in batch}
    filled = {key: reward.new_full((*reward.shape[:-1], size), value) for key, (size, value) in lacking.items()}
    return {**batch, **filled}


def join(batches: Sequence[Batch]) -> Batch:
    """Concatenate the rows of several batches, in their order, and add SOURCE_SIZES.

    Episodes are padded to the longest of all; packed ones are packed again.
    """
    sizes = torch.tensor([len(batch[INDICES]) for batch in batches])
    if BATCH_SIZES in batches[0]:
        joined = _join_packed(batches)
    else:
        if MASK in batches[0]:
            longest = max(len(batch[MASK]) for batch in batches)
            batches = [batch if len(batch[MASK]) == longest else _padded_to(batch, longest) for batch in batches]
        joined = _joined(batches, int(MASK in batches[0]))
    joined[SOURCE_SIZES] = sizes
    return joined


def split(batch: Batch, of_update: Mapping[str, Tensor]) -> Iterator[tuple[Batch, dict[str, Tensor]]]:
    """Yield each storage's rows of a joined batch, with those of an update's results, one for each step, by name."""
    start = 0
    for size in batch[SOURCE_SIZES].tolist():
        rows = slice(start, start + size)
        start += size
        if EPISODE in batch:
            yield _packed_rows(batch, rows, of_update)
        else:
            yield _padded_rows(batch, rows, of_update)


def incompatible_fields(batches: Mapping[str, Batch]) -> list[str]:
    """Return the reasons why batches of several storages, by name, cannot be joined; empty if they can."""
    (first, expected), *others = ((name, _kinds_of(batch)) for name, batch in batches.items())
    found = []
    for name, kinds in others:
        for field in sorted(expected.keys() ^ kinds.keys()):
            has, lacks = (first, name) if field in expected else (name, first)
            found.append(f"{has!r} has {field}, {lacks!r} has none")
        found += [
            f"{field} of {first!r} is {kind}, of {name!r} {kinds[field]}"
            for field, kind in expected.items()
            if kinds.get(field, kind) != kind
        ]
    return found


def _kinds_of(batch: Batch) -> dict[str, str]:
    """Return the dtype and row shape of each leaf; with the number of steps where that must be equal in all batches."""
    axis, kinds = int(MASK in batch), {}
    # Sequences with a burn-in or lead-out cannot be padded.
    has_other_steps = BURN_IN in batch or LEAD_OUT in batch
    for path, leaf in _leaves(batch):
        outside = path[0] in (BURN_IN, LEAD_OUT)
        field = path[1] if outside else path[0]
        if field in _OF_PACKING:
            continue
        rows = _axis_of(field, axis)
        steps = f"{len(leaf)} steps of " if rows and has_other_steps else ""
        name = "".join([path[0], *(f"[{name!r}]" for name in path[1:])])
        kinds[name] = f"{steps}{tuple(leaf.shape[rows + 1 :])} {str(leaf.dtype).removeprefix('torch.')}"
    return kinds


def _axis_of(field: str, axis: int) -> int:
    return 0 if field in _OF_ROWS else axis


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, (*path, name))
    elif path != (SOURCE_SIZES,):
        yield path, value


def _changed(value: Any, change: Callable[[str, Tensor], Tensor], field: str | None = None) -> Any:
    """Return a batch, or a part of one, with a function ``(field, leaf) -> leaf`` applied to all leaves."""
    if not isinstance(value, dict):
        return change(field or "", value)
    return {
        name: _changed(part, change, field or (None if name in (BURN_IN, LEAD_OUT) else name))
        for name, part in value.items()
        if name != SOURCE_SIZES
    }


def _slice(leaf: Tensor, rows: slice, axis: int) -> Tensor:
    return leaf[:, rows] if axis else leaf[rows]


def _joined(values: Sequence[Any], axis: int, field: str | None = None) -> Any:
    if not isinstance(values[0], dict):
        return torch.cat(list(values), _axis_of(field or "", axis))
    return {
        name: _joined([value[name] for value in values], axis, field or (None if name in (BURN_IN, LEAD_OUT) else name))
        for name in values[0]
    }


def _padded_to(batch: Batch, steps: int) -> Batch:
    """Return a batch of padded episodes with more padding, which repeats the last steps."""

    def fill(field: str, leaf: Tensor) -> Tensor:
        if field in _OF_ROWS:
            return leaf
        more = steps - len(leaf)
        repeated = leaf[-1:].expand(more, *leaf.shape[1:])
        return torch.cat([leaf, torch.zeros_like(repeated) if field == MASK else repeated])

    return dict(_changed(batch, fill))


def _join_packed(batches: Sequence[Batch]) -> Batch:
    """Join batches of packed episodes into one packing: in every step, the longest episode first."""
    kept = [{key: value for key, value in batch.items() if key not in _OF_PACKING} for batch in batches]
    sizes = [len(batch[INDICES]) for batch in batches]
    starts = [sum(sizes[:position]) for position in range(len(sizes))]
    device = batches[0][EPISODE].device
    episode = torch.cat([batch[EPISODE][:, 0] + start for batch, start in zip(batches, starts, strict=True)])
    step = torch.cat(
        [torch.repeat_interleave(torch.arange(len(batch[BATCH_SIZES])), batch[BATCH_SIZES]) for batch in batches]
    )
    order = torch.argsort(torch.bincount(episode, minlength=sum(sizes)), descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=device)
    rows = torch.argsort(step.to(device) * len(order) + rank[episode])
    joined: Batch = _changed(_joined(kept, 0), lambda field, leaf: leaf if field in _OF_ROWS else leaf[rows])
    return joined | {
        EPISODE: episode[rows, None],
        BATCH_SIZES: torch.bincount(step),
        SORTED_INDICES: order,
        UNSORTED_INDICES: rank,
    }


def _padded_rows(batch: Batch, rows: slice, of_update: Mapping[str, Tensor]) -> tuple[Batch, dict[str, Tensor]]:
    """Select rows of single transitions, or of sequences."""
    axis = int(MASK in batch)
    part = _changed(batch, lambda field, leaf: _slice(leaf, rows, _axis_of(field, axis)))
    return part, {key: _slice(values, rows, axis) for key, values in of_update.items()}


def _packed_rows(batch: Batch, episodes: slice, of_update: Mapping[str, Tensor]) -> tuple[Batch, dict[str, Tensor]]:
    """Select the steps of some packed episodes, in an order that is packed, too."""
    of = batch[EPISODE][:, 0]
    rows = torch.nonzero((of >= episodes.start) & (of < episodes.stop))[:, 0]
    kept = {key: value for key, value in batch.items() if key not in _OF_PACKING}
    part = _changed(kept, lambda field, leaf: leaf[episodes] if field in _OF_ROWS else leaf[rows])
    episode = of[rows] - episodes.start
    lengths = torch.bincount(episode, minlength=episodes.stop - episodes.start)
    longest_first = torch.argsort(lengths, descending=True, stable=True)
    part |= {
        EPISODE: episode[:, None],
        BATCH_SIZES: (lengths.cpu()[:, None] > torch.arange(int(lengths.max()))).sum(0),
        SORTED_INDICES: longest_first,
        UNSORTED_INDICES: torch.argsort(longest_first),
    }
    return part, {key: values[rows] for key, values in of_update.items()}
