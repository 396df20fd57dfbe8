"""States of rings that share the memory of the ring instead of copying it, for saving where memory is short."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.column import Column
from storages.transition import Array

_IS_SHARED: ContextVar[bool] = ContextVar("is_shared", default=False)


@contextmanager
def sharing_memory() -> Iterator[None]:
    """Within it, states of storages are views of their memory where possible, valid until the next change.

    Rows are copied where those that are stored are not contiguous, as in a ring that has overwritten its oldest rows.
    """
    token = _IS_SHARED.set(True)
    try:
        yield
    finally:
        _IS_SHARED.reset(token)


def is_shared() -> bool:
    """Return whether states may share memory now."""
    return _IS_SHARED.get()


def contiguous(places: NDArray[np.integer]) -> slice | None:
    """Return indices as a slice; None where they are not consecutive, or none."""
    if not len(places) or int(places[-1]) - int(places[0]) + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)


def rows_of(
    column: Column, rows: NDArray[np.int64], records: torch.Tensor, first_byte: int
) -> dict[str, Any] | None:
    """Return a view of some rows of a column, for :meth:`Column.saved`; None where it cannot be.

    All columns whose rows are parts of records are views of one tensor of bytes, which is saved once.

    Args:
        column: the column.
        rows: slots of the rows.
        records: (rows, E, bytes) uint8, the records of all rows.
        first_byte: address of the records.
    """
    span = contiguous(rows)
    if span is None or not column.width:
        return None
    if column.own:
        return {"rows": torch.from_numpy(column.data[span])}
    offset = column.data.__array_interface__["data"][0] - first_byte
    shape, dtype = list(column.data.shape[2:]), column.data.dtype.str
    return {"rows": records[span, :, offset : offset + column.width], "bytes_of": [dtype, shape]}


def entries_of(values: Array, places: NDArray[np.integer]) -> Array:
    """Return some entries of a table, as a view where they are consecutive and memory is shared."""
    span = contiguous(places) if is_shared() else None
    return values[places] if span is None else values[span]
