"""Batches as NumPy structured arrays, which are sent between processes as one block of memory."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.transition import Batch

PackedBatches: TypeAlias = list[NDArray[np.void]]
"""Structured arrays, each element a batch; consecutive batches of equal shapes and dtypes share one array."""


def pack(batches: Sequence[Batch]) -> PackedBatches:
    """Copy batches of tensors on the CPU into structured arrays."""
    packed = []
    for dtype, alike in itertools.groupby(batches, _record_of):
        rows = list(alike)
        records = np.empty(len(rows), dtype)
        for record, batch in zip(records, rows, strict=True):
            _write(batch, record)
        packed.append(records)
    return packed


def unpack(packed: PackedBatches) -> Iterator[dict[str, Any]]:
    """Iterate over the batches, dicts of arrays, each a copy."""
    return (_arrays(records[row, ...].copy()) for records in packed for row in range(len(records)))


def _record_of(batch: Mapping[str, Any]) -> np.dtype[np.void]:
    fields = [
        (key, _record_of(value)) if isinstance(value, dict) else (key, value.numpy().dtype, tuple(value.shape))
        for key, value in batch.items()
    ]
    return np.dtype(fields, align=True)


def _write(batch: Mapping[str, Any], record: Any) -> None:
    for key, value in batch.items():
        if isinstance(value, dict):
            _write(value, record[key])
        else:
            record[key][...] = value.numpy()


def _arrays(record: NDArray[Any]) -> dict[str, Any]:
    arrays = {key: record[key] for key in record.dtype.names or ()}
    return {key: _arrays(value) if value.dtype.names else value for key, value in arrays.items()}
