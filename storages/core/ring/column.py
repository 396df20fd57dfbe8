"""One leaf of a ring's transitions: an array (rows, E, ...)."""

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
    """One leaf's values.

    Args:
        layout: shape and dtype of what one transition has of the leaf.
        data: (rows, E, *shape), the values, or of stacked frames the newest ones; a view into records, or an array.
        successor: the leaf that a row holds for the row before it, as OBS is the OBS2 of the row before.
        own: whether the array is this column's alone.
    """

    def __init__(self, layout: LeafLayout, data: Array, successor: FieldKey | None, own: bool) -> None:
        self.layout = layout
        self.depth = 1
        """Frames in a value that is a stack of them, else 1."""
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
        """Bytes of memory that are this column's alone."""
        return self.data.nbytes if self.own else 0

    def differs(self, slot: int, begins: Array) -> NDArray[np.bool_] | None:
        """Return (E,), where a step does not begin with what the step before it led to; None for nowhere.

        Bytes are compared: NaN equals itself here, and 0.0 differs from -0.0.
        """
        stored = self.data[slot]
        return None if stored.tobytes() == begins.tobytes() else (bytes_of(stored) != bytes_of(begins)).any(axis=1)

    def bytes_in(self, slot: int, envs: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return a copy (environments, width) of a row's values."""
        return bytes_of(self.data[slot, envs])

    def reset(self) -> None:
        """Forget all rows."""

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Forget the oldest rows."""

    def saved(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return what some rows hold, as tensors and plain data."""
        return {"rows": torch.from_numpy(self.data[rows]), "depth": self.depth}

    def restore(self, rows: NDArray[np.int64], saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`saved` returned."""
        self.data[rows] = saved["rows"].numpy()

    def snapshot(self, first: int, end: int) -> dict[str, Fragments]:
        """Return rows [first, end), as views, and what the last of them led to."""
        rows = len(self.data)
        arrays = {ROWS: tuple(self.data[span] for span in spans(first, end, rows)) or (self.data[:0],)}
        return arrays | {FOLLOWING: (self.data[end % rows].copy(),)} if self.successor else arrays

    def append_span(self, key: FieldKey, part: RowSpan) -> None:
        """Append the rows of a span, of the leaf ``key``."""
        rows = len(self.data)
        fill(self.data, list(spans(part.first, part.steps, rows)), part.array(ROWS, key))
        if self.successor:
            self.data[part.steps % rows] = part.array(FOLLOWING, key)


def bytes_of(values: Array) -> NDArray[np.uint8]:
    """Return values of some environments as bytes, (E, bytes)."""
    contiguous = np.ascontiguousarray(values)
    return contiguous.reshape(len(values), math.prod(values.shape[1:])).view(np.uint8)
