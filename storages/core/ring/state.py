"""States of rings, as tensors and plain data: copies, or views of the memory of the ring where it is short."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.column import Column, saved_leaf
from storages.core.ring.columns import SUCCESSORS_OF
from storages.core.ring.layout import Layout, LeafLayout, text
from storages.core.ring.ring import Ring
from storages.core.ring.validation import depths_of
from storages.transition import Array

_IS_SHARED: ContextVar[bool] = ContextVar("is_shared", default=False)


def state_of(ring: Ring) -> dict[str, Any]:
    """Return all live rows of a ring, oldest first; copies, but within :func:`sharing_memory`."""
    state: dict[str, Any] = {"size": ring.size, "num_envs": ring.num_envs, "steps": ring.steps, "first": ring.first}
    state |= {"full_size": ring.full_size} if ring.size < ring.full_size else {}
    if not ring.layout:
        return state | {"leaves": []}
    live = np.arange(ring.oldest, ring.steps) % ring.rows
    numbers, finals = ring.columns.finals.saved(live, _entries_of)
    shared = _SharedRecords(ring.columns.records, np.arange(ring.oldest, ring.steps + 1) % ring.rows)
    return state | {
        "final_numbers": torch.from_numpy(numbers),
        "ended": torch.from_numpy(ring.columns.ended.copy()),
        "leaves": [
            {"path": list(path), "finals": torch.from_numpy(finals[text(path)]) if column.successor else None}
            | column.saved(rows := _saved_rows(ring, column), shared.of(column, rows))
            for path, column in ring.columns.inserted.items()
        ],
    }


def load_state(ring: Ring, state: Mapping[str, Any]) -> None:
    """Restore what :func:`state_of` returned of a ring of the same size and number of environments.

    Raises:
        ValueError: it was saved with another size, number of environments or depth of stacked frames.
    """
    if ring.num_envs is not None and state["num_envs"] not in (None, ring.num_envs):
        raise ValueError(f"{ring.owner}: made for {ring.num_envs} environments, saved with {state['num_envs']}")
    layout = saved_layout(state)
    full_size, size = state.get("full_size", state["size"]), state["size"]
    if not 0 < size <= full_size or (size < full_size and ring.limit is None):
        raise ValueError(f"{ring.owner}: saved with size {size} of {full_size}, without max_bytes")
    fitting = full_size if ring.grows else ring.size_of(layout, state["num_envs"], full_size)
    if full_size != fitting and (layout or ring.limit is None):
        raise ValueError(f"{ring.owner}: made with size {fitting}, saved with {full_size}")
    if not layout:
        ring.steps = ring.first = state["first"]
        ring.forget_columns()
        ring.steps = state["steps"]
        return
    saved_depths = {tuple(leaf["path"]): leaf["depth"] for leaf in state["leaves"] if leaf["depth"] > 1}
    if saved_depths != (depths := depths_of(layout, ring.stacked_frames, ring.owner)):
        raise ValueError(f"{ring.owner}: made for stacked frames {depths}, saved with {saved_depths}")
    ring.steps, ring.first = state["steps"], state["first"]
    ring.layout_from = "the state that was loaded"
    ring.allocate(layout, state["num_envs"], full_size, size)
    live = np.arange(ring.oldest, ring.steps) % ring.rows
    ring.columns.ended[...] = state["ended"].numpy()
    finals = {
        text(tuple(leaf["path"])): leaf["finals"].numpy() for leaf in state["leaves"] if leaf["finals"] is not None
    }
    ring.columns.finals.extend(live, state["final_numbers"].numpy(), finals)
    for leaf in state["leaves"]:
        column = ring.columns[tuple(leaf["path"])]
        column.restore(_saved_rows(ring, column), leaf)


def saved_layout(state: Mapping[str, Any]) -> Layout:
    """Return the layout of the ring that a state was saved from; empty where it had none yet."""
    layout: Layout = {}
    for leaf in state["leaves"]:
        depth, of_a_row = leaf["depth"], saved_leaf(leaf)
        layout[tuple(leaf["path"])] = LeafLayout(((depth,) if depth > 1 else ()) + of_a_row.shape, of_a_row.dtype)
    return layout | {(SUCCESSORS_OF[p[0]], *p[1:]): leaf for p, leaf in layout.items() if p[0] in SUCCESSORS_OF}


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


def _contiguous(places: NDArray[np.integer]) -> slice | None:
    """Return indices as a slice; None where they are not consecutive, or none."""
    if not len(places) or int(places[-1]) - int(places[0]) + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)


class _SharedRecords:
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
        span = _contiguous(rows)
        if self._rows is None or span is None or not column.width:
            return None
        if column.own:
            return {"rows": torch.from_numpy(column.data[span])}
        offset = column.data.__array_interface__["data"][0] - self._first_byte
        shape, dtype = list(column.data.shape[2:]), column.data.dtype.str
        return {"rows": self._rows[span, :, offset : offset + column.width], "bytes_of": [dtype, shape]}


def _entries_of(values: Array, places: NDArray[np.integer]) -> Array:
    """Return some entries of a table, as a view where they are consecutive and memory is shared."""
    span = _contiguous(places) if _IS_SHARED.get() else None
    return values[places] if span is None else values[span]


def _saved_rows(ring: Ring, column: Column) -> NDArray[np.int64]:
    """Return the slots of live rows, of the older frames of stacks, and of the newest next observation."""
    begin = max(ring.first, ring.oldest - (column.depth - 1))
    return np.arange(begin, ring.steps + (column.successor is not None)) % ring.rows
