"""Batches as NumPy structured arrays, which are passed between processes as one block of memory."""

import functools
import itertools
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, leaves
from storages.transition import Batch

PackedBatches: TypeAlias = list[NDArray[np.void]]
"""Structured arrays, each element a batch; consecutive batches of equal shapes and dtypes share one array."""
PackedLayout: TypeAlias = list[tuple[int, np.dtype[np.void]]]
"""Length and dtype of each structured array, with which :func:`arrays_in` finds them in memory."""

_ALIGNMENT_BYTES = 64


def pack(batches: Sequence[Batch]) -> PackedBatches:
    """Copy batches of tensors on the CPU into structured arrays."""
    groups = _groups_of(batches)
    packed = [np.empty(length, dtype) for length, dtype in _layout_for(groups)]
    _fill(packed, groups)
    return packed


def pack_into(memory: mmap.mmap, batches: Sequence[Batch]) -> PackedLayout | None:
    """Copy batches of tensors on the CPU into memory; returns None, with nothing written, if they do not fit."""
    groups = _groups_of(batches)
    layout = _layout_for(groups)
    if bytes_of(layout) > len(memory):
        return None
    _fill(arrays_in(memory, layout), groups)
    return layout


def unpack(packed: PackedBatches, release: Callable[[], None] | None = None) -> Iterator[dict[str, Any]]:
    """Iterate over the batches, dicts of arrays, each a copy.

    Args:
        packed: the batches.
        release: called when no more batches will be taken, if one was.
    """
    try:
        for records in packed:
            for row in range(len(records)):
                yield _arrays(records[row, ...].copy())
    finally:
        if release is not None:
            release()


def layout_of(packed: PackedBatches) -> PackedLayout:
    """Return the length and the dtype of each array."""
    return [(len(records), records.dtype) for records in packed]


def bytes_of(layout: PackedLayout) -> int:
    """Return the bytes that arrays take in memory."""
    return sum(_padded(length * dtype.itemsize) for length, dtype in layout)


def arrays_in(memory: mmap.mmap, layout: PackedLayout) -> PackedBatches:
    """Return structured arrays that lie in memory, one after the other."""
    found, begin = [], 0
    for length, dtype in layout:
        found.append(np.ndarray((length,), dtype, memory, begin))
        begin += _padded(length * dtype.itemsize)
    return found


def _groups_of(batches: Sequence[Batch]) -> list[list[Batch]]:
    return [list(alike) for _, alike in itertools.groupby(batches, _kinds_of)]


def _layout_for(groups: Sequence[Sequence[Batch]]) -> PackedLayout:
    return [(len(rows), _record_of(_kinds_of(rows[0]))) for rows in groups]


def _fill(packed: PackedBatches, groups: Sequence[Sequence[Batch]]) -> None:
    for records, rows in zip(packed, groups, strict=True):
        columns = {path: _column(records, path) for path, _ in leaves(rows[0])}
        for row, batch in enumerate(rows):
            tensors: Iterator[tuple[FieldKey, Any]] = leaves(batch)
            for path, tensor in tensors:
                columns[path][row] = tensor.numpy()


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _kinds_of(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the names, dtypes and shapes of a batch, which batches that share an array have in common."""
    return tuple(
        (key, *_kinds_of(value)) if isinstance(value, dict) else (key, value.dtype, value.shape)
        for key, value in batch.items()
    )


@functools.lru_cache(maxsize=64)
def _record_of(kinds: tuple[Any, ...]) -> np.dtype[np.void]:
    fields: list[Any] = [
        (key, _record_of(tuple(of_key)))
        if isinstance(of_key[0], tuple)
        else (key, torch.empty(0, dtype=of_key[0]).numpy().dtype, tuple(of_key[1]))
        for key, *of_key in kinds
    ]
    return np.dtype(fields, align=True)


def _column(records: NDArray[np.void], path: FieldKey) -> NDArray[Any]:
    column: NDArray[Any] = records
    for name in path:
        column = column[name]
    return column


def _arrays(record: NDArray[Any]) -> dict[str, Any]:
    arrays = {key: record[key] for key in record.dtype.names or ()}
    return {key: _arrays(value) if value.dtype.names else value for key, value in arrays.items()}
