"""The column of one leaf of a ring's transitions: an array (rows, E, ...)."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, LeafLayout
from storages.core.ring.snapshot import FOLLOWING, ROWS, Fragments, RowSpan, fill, spans
from storages.transition import Array


class Column:
    """The values of one leaf.

    Args:
        layout: shape and dtype of the leaf in one transition.
        data: (rows, E, *shape), the values, or the newest frames of stacks; an array, or a view into records.
        successor: the leaf of the previous row that has the same values, as OBS2 for OBS.
        own: whether the array is this column's own.
    """

    def __init__(self, layout: LeafLayout, data: Array, successor: FieldKey | None, own: bool) -> None:
        self.layout = layout
        self.depth = 1
        """Frames in a stack, else 1."""
        self.data = data
        self.successor = successor
        self.own = own

    @property
    def width(self) -> int:
        """Bytes of one row of one environment."""
        width: int = self.data.dtype.itemsize * math.prod(self.data.shape[2:])
        return width

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the column owns."""
        return self.data.nbytes if self.own else 0

    def differs(self, slot: int, begins: Array) -> NDArray[np.bool_] | None:
        """Return (E,), where a step's values differ from the next values of the step before; None for nowhere.

        Bytes are compared: NaN equals itself, and 0.0 differs from -0.0.
        """
        stored = self.data[slot]
        return None if stored.tobytes() == begins.tobytes() else (bytes_of(stored) != bytes_of(begins)).any(axis=1)

    def bytes_in(self, slot: int, envs: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return a copy (environments, width) of a row's values."""
        return bytes_of(self.data[slot, envs])

    def reset(self) -> None:
        """Drop all rows."""

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Drop the oldest rows."""

    def saved(self, rows: NDArray[np.int64], view: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the contents of some rows, as tensors and plain data; ``view`` is used instead of a copy of them."""
        return ({"rows": torch.from_numpy(self.data[rows])} if view is None else view) | {"depth": self.depth}

    def restore(self, rows: NDArray[np.int64], saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`saved` returned."""
        self.data[rows] = values_of(saved)

    def snapshot(self, first: int, end: int) -> dict[str, Fragments]:
        """Return rows [first, end) as views, and the next values of the last one."""
        rows = len(self.data)
        arrays = {ROWS: tuple(self.data[span] for span in spans(first, end, rows)) or (self.data[:0],)}
        return arrays | {FOLLOWING: (self.data[end % rows].copy(),)} if self.successor else arrays

    def append_span(self, key: FieldKey, part: RowSpan) -> None:
        """Append a span's rows of the leaf ``key``."""
        rows = len(self.data)
        fill(self.data, list(spans(part.first, part.steps, rows)), part.array(ROWS, key))
        if self.successor:
            self.data[part.steps % rows] = part.array(FOLLOWING, key)


def values_of(saved: Mapping[str, Any]) -> Array:
    """Return the rows that :meth:`Column.saved` returned."""
    rows: Array = saved["rows"].numpy()
    if "bytes_of" not in saved:
        return rows
    leaf = saved_leaf(saved)
    return np.ascontiguousarray(rows).view(leaf.dtype).reshape(*rows.shape[:2], *leaf.shape)


def saved_leaf(saved: Mapping[str, Any]) -> LeafLayout:
    """Return the shape and dtype of a row that :meth:`Column.saved` returned, without a stack's axis.

    Raises:
        ValueError: it is said to be what its bytes cannot be.
    """
    rows = saved["rows"]
    if "bytes_of" not in saved:
        return LeafLayout(tuple(rows.shape[2:]), rows.numpy().dtype)
    leaf = LeafLayout(tuple(saved["bytes_of"][1]), np.dtype(saved["bytes_of"][0]))
    if leaf.dtype.kind not in "biufc" or (leaf.count * leaf.dtype.itemsize,) != tuple(rows.shape[2:]):
        raise ValueError(f"{tuple(rows.shape[2:])} bytes of a row cannot be {leaf.dtype}{leaf.shape}")
    return leaf


def bytes_of(values: Array) -> NDArray[np.uint8]:
    """Return values of some environments as bytes, (E, bytes)."""
    contiguous = np.ascontiguousarray(values)
    return contiguous.reshape(len(values), math.prod(values.shape[1:])).view(np.uint8)
