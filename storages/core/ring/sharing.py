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


def contiguous(places: NDArray[np.integer]) -> slice | None:
    """Return indices as a slice; None where they are not consecutive, or none."""
    if not len(places) or int(places[-1]) - int(places[0]) + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)


class SharedRecords:
    """Views of a ring's rows, instead of copies; none outside of :func:`sharing_memory`.

    All columns whose rows are parts of records are views of one tensor of bytes, which is saved once.

    Args:
        records: (rows, E, bytes) uint8, the records of all rows.
        rows: slots of all rows that a state may hold.
    """

    def __init__(self, records: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
        self._first_byte = records.__array_interface__["data"][0]
        # Saving a tensor saves all memory that it is a view of.
        self._rows = torch.from_numpy(records[: int(rows.max(initial=0)) + 1]) if _IS_SHARED.get() else None

    def of(self, column: Column, rows: NDArray[np.int64]) -> dict[str, Any] | None:
        """Return a view of some rows of a column, for :meth:`Column.saved`; None where they must be copied."""
        span = contiguous(rows)
        if self._rows is None or span is None or not column.width:
            return None
        if column.own:
            return {"rows": torch.from_numpy(column.data[span])}
        offset = column.data.__array_interface__["data"][0] - self._first_byte
        shape, dtype = list(column.data.shape[2:]), column.data.dtype.str
        return {"rows": self._rows[span, :, offset : offset + column.width], "bytes_of": [dtype, shape]}


def entries_of(values: Array, places: NDArray[np.integer]) -> Array:
    """Return some entries of a table, as a view where they are consecutive and memory is shared."""
    span = contiguous(places) if _IS_SHARED.get() else None
    return values[places] if span is None else values[span]
