"""Cache of observations and hidden states on the algorithm's device, where batches of them are gathered.

Observations are the large part of a transition. The device holds a table for each of their leaves; for a batch, only
row indices into the tables and the other, small fields are transferred. Steps inserted since the last batch are copied
into the tables before the next one. The ring still holds everything, and is what is saved and sliced.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.device.transfer import Transfer, pack, torch_dtype, unpack
from storages.core.kernels.gather import following_places
from storages.core.kernels.stacks import stack_places
from storages.core.parts import RingObserver
from storages.core.ring.column import Column
from storages.core.ring.frames import FRAMES, FrameColumn
from storages.core.ring.layout import FieldKey, nest, text
from storages.core.ring.ring import Ring
from storages.core.ring.side_table import SideTable
from storages.transition import BURN_IN, LEAD_OUT, RHS, Array, Batch, Sample

_LARGEST_PIECE_BYTES = 2**26
_ROWS_TO_A_PLACE_ASIDE = 64
"""Rows per initial place for final observations; with more ends of episodes, the tables are allocated again."""


class DeviceMemoryError(RuntimeError):
    """A device cache does not fit into the memory of its device."""


class DeviceCache(RingObserver):
    """Tables of a ring's observations and hidden states on a device.

    They are allocated before the first insertion, and again after rows were loaded or copied.

    Args:
        ring: the ring of the transitions.
        transfer: transfers data to the device.
        on_host: leaves that are gathered on the host, because they are changed before the transfer.
    """

    def __init__(self, ring: Ring, transfer: Transfer, on_host: frozenset[FieldKey] = frozenset()) -> None:
        self._ring, self._transfer, self._on_host = ring, transfer, on_host
        self._is_built = False
        self._columns: dict[FieldKey, Column] = {}
        self._path_of: dict[FieldKey, FieldKey] = {}
        """The column from which a leaf is read: its own, or that of which it is the successor."""
        self._gathered: dict[frozenset[str] | None, tuple[frozenset[FieldKey], list[FieldKey]]] = {}
        self._tables: dict[FieldKey, _Table] = {}
        self._steps = _NO_STEPS
        """Number of the ring's next step at the last call of :meth:`synchronize`."""

    def build(self) -> None:
        """Allocate the tables of the ring's columns.

        Raises:
            DeviceMemoryError: they do not fit.
        """
        self._columns = {path: column for path, column in self._ring.columns.chained() if path not in self._on_host}
        successors = {column.successor: path for path, column in self._columns.items()}
        self._path_of = {path: path for path in self._columns}
        self._path_of |= {successor: path for successor, path in successors.items() if successor is not None}
        self._gathered = {}
        with self._transfer.stream():
            self._make_tables()
        self._is_built = True

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Allocate the tables before the first insertion; refuse it if they do not fit."""
        if self._is_built:
            return
        first_of_all = not ring.layout
        ring.init_columns(sample)
        try:
            self.build()
        except DeviceMemoryError:
            if first_of_all:
                ring.forget_columns()
            raise

    def after_states(self, ring: Ring, transitions: NDArray[np.int64]) -> None:
        """Copy the states of transitions to the device."""
        table = self._tables.get((RHS,))
        if table is None:
            # All rows are copied when the tables are made.
            return
        # From the ring, so that a transition that is given twice has one state.
        values = table.column.data[transitions // ring.envs % ring.rows, transitions % ring.envs]
        with self._transfer.stream():
            table.put(transitions % (ring.rows * ring.envs), values, self._to_device)

    def after_resize(self, ring: Ring) -> None:
        """Allocate the tables again, for the new number of rows."""
        self.load_state_dict(ring, {})

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Allocate the tables again."""
        self._is_built, self._tables = False, {}
        if self._ring.layout:
            self.build()

    def __reduce__(self) -> tuple[Any, ...]:
        # The tables are made again from the ring.
        return DeviceCache, (self._ring, self._transfer, self._on_host)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(table.values.nbytes for table in self._tables.values())

    def gather(
        self,
        transitions: NDArray[np.int64],
        keys: set[str] | None = None,
        last: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        """Gather as :meth:`storages.core.ring.ring.Ring.gather`, with table rows in place of cached values.

        Table rows are (B,) int64, or (B, depth) for frame stacks. They may be sliced and reshaped like the values, by
        which :meth:`resolve` replaces them.
        """
        first = np.ascontiguousarray(transitions)
        last = first if last is None else np.ascontiguousarray(last)
        from_ring, from_tables = self._wanted(keys)
        fields = self._ring.columns.gather(first, from_ring, last)
        rows = first % (self._ring.rows * self._ring.envs)
        following = np.empty_like(last)
        columns = self._ring.columns
        following_places(last, self._ring.envs, columns.final_numbers, columns.finals.capacity - 1, following)
        found: dict[FieldKey, Array] = {}
        for path in from_tables:
            own = self._path_of[path]
            column, begins = self._columns[own], path == own
            if isinstance(column, FrameColumn):
                found[path] = self._frames(own, column, first if begins else last, None if begins else following)
            else:
                found[path] = rows if begins else following
        for key, value in nest(found).items():
            if isinstance(value, dict):
                fields.setdefault(key, {}).update(value)
            else:
                fields[key] = value
        return fields

    def resolve(self, batch: Batch) -> Batch:
        """Return the batch with the values of cached leaves instead of their table rows."""
        return {
            key: self.resolve(value)
            if key in (BURN_IN, LEAD_OUT)
            else {name: self._values((key, name), leaf) for name, leaf in value.items()}
            if isinstance(value, dict)
            else self._values((key,), value)
            for key, value in batch.items()
        }

    def synchronize(self) -> None:
        """Copy steps inserted since the last call to the device; must be called before gathering."""
        if not self._is_built:
            self.build()
        with self._transfer.stream():
            self._copy_new()

    def _copy_new(self) -> None:
        if not self._tables or any(table.is_too_small for table in self._tables.values()):
            self._make_tables()
        for table in self._tables.values():
            table.copy_new_finals(self._to_device)
        ring = self._ring
        if self._steps == ring.steps:
            return
        # The row of the newest next observation is copied again: the next step may have overwritten it.
        begin = max(self._steps, ring.first, ring.steps + 1 - ring.rows)
        for first, end in self._pieces(begin, ring.steps + 1):
            slots = slice(first % ring.rows, first % ring.rows + end - first)
            new = self._to_device({text(path): table.column.data[slots] for path, table in self._tables.items()})
            for path, table in self._tables.items():
                rows = new[text(path)].flatten(0, 1).view(table.values.dtype)
                table.values[slots.start * ring.envs : slots.stop * ring.envs] = rows
        self._steps = ring.steps

    def _frames(
        self, path: FieldKey, column: FrameColumn, transitions: NDArray[np.int64], following: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        places = np.empty((len(transitions), column.depth), np.int64)
        stack_places(
            transitions,
            0 if following is None else 1,
            self._ring.envs,
            column.before.reshape(-1, 1),
            column.padding.numbers.reshape(-1, 1),
            column.padding.capacity - 1,
            self._tables[path].padding_begin,
            places,
        )
        if following is not None:
            places[:, -1] = following
        return places

    def _values(self, path: FieldKey, leaf: torch.Tensor) -> torch.Tensor:
        if path not in self._path_of:
            return leaf
        return self._tables[self._path_of[path]].rows(leaf)

    def _wanted(self, keys: set[str] | None) -> tuple[frozenset[FieldKey], list[FieldKey]]:
        """Return the leaves of some fields that are read from the ring, and those from the tables."""
        asked = None if keys is None else frozenset(keys)
        if asked not in self._gathered:
            paths = [path for path in self._ring.layout if asked is None or path[0] in asked]
            self._gathered[asked] = (
                frozenset(path for path in paths if path not in self._path_of),
                [path for path in paths if path in self._path_of],
            )
        return self._gathered[asked]

    def _make_tables(self) -> None:
        # Old tables are freed first; their contents are copied from the ring again.
        self._tables = {}
        self._steps = _NO_STEPS
        finals = self._ring.columns.finals
        tables = {path: _Table(column, finals, text(path)) for path, column in self._columns.items()}
        needed, free = sum(table.nbytes for table in tables.values()), free_bytes(self._transfer.device)
        if free is not None and needed > free:
            raise DeviceMemoryError(
                f"{self._ring.owner}: keep_on_device needs {needed:,} bytes for observations and hidden states on "
                f"{self._transfer.device}, where {free:,} are free; reduce size, or set keep_on_device=False"
            )
        for table in tables.values():
            table.allocate(self._transfer.device)
        self._tables = tables

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield rows [begin, end) in pieces of bounded size that do not wrap around the ring."""
        row_bytes = sum(column.width for column in self._columns.values()) * self._ring.envs
        most = max(1, _LARGEST_PIECE_BYTES // max(1, row_bytes))
        while begin < end:
            until = min(end, begin + most, begin - begin % self._ring.rows + self._ring.rows)
            yield begin, until
            begin = until

    def _to_device(self, arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        device = self._transfer.device
        return unpack(pack(arrays, pin_memory=device.type == "cuda").to(device))


class _Table:
    """Table of a leaf: the values of all rows, a row of zeros, and the side tables' entries.

    Args:
        column: the leaf's column.
        finals: the side table of final observations.
        name: name of the column in it.
    """

    def __init__(self, column: Column, finals: SideTable, name: str) -> None:
        self.column = column
        steps, envs, *shape = column.data.shape
        self._shape, self._rows = shape, steps * envs
        few = max(1, self._rows // _ROWS_TO_A_PLACE_ASIDE)
        self._queues = [_Queue(finals, name, self._rows + 1, max(finals.capacity, few), 1)]
        if isinstance(column, FrameColumn):
            frames = column.depth - 1
            self._queues.append(
                _Queue(column.padding, FRAMES, self._queues[0].end, max(column.padding.capacity, few), frames)
            )
        self.padding_begin = self._queues[-1].begin
        self._dtype = torch_dtype(column.data.dtype)
        self.values = torch.empty(0)
        """(rows, ...): unsigned integers as signed ones where torch cannot index them."""

    @property
    def nbytes(self) -> int:
        """Bytes of the table, allocated or not."""
        return self._queues[-1].end * self.column.width

    @property
    def is_too_small(self) -> bool:
        """Whether a side table has outgrown its part of the table."""
        return any(queue.side_table.capacity > queue.room for queue in self._queues)

    def allocate(self, device: torch.device) -> None:
        """Allocate the table."""
        shape, dtype = (self._queues[-1].end, *self._shape), _SIGNED.get(self._dtype, self._dtype)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.values[self._rows].zero_()

    def copy_new_finals(self, to_device: Any) -> None:
        """Copy the side tables' entries that were added since the last call."""
        for queue in self._queues:
            places, new = queue.take_new()
            if len(places):
                values = new.view(self.column.data.dtype).reshape(len(places), *self._shape)
                self.put(places, values, to_device)

    def put(self, places: NDArray[np.int64], values: Array, to_device: Any) -> None:
        """Copy values (N, *shape) to rows (N,)."""
        arrived = to_device({"places": places, "values": values})
        self.values.index_copy_(0, arrived["places"], arrived["values"].view(self.values.dtype))

    def rows(self, places: torch.Tensor) -> torch.Tensor:
        """Return the values (..., *shape) of rows (...)."""
        found = self.values.index_select(0, places.flatten()).view(self._dtype)
        return found.view(*places.shape, *self._shape)


class _Queue:
    """The part of a device table that mirrors a side table.

    Args:
        side_table: the side table.
        name: name of the values in it.
        begin: first row of the part.
        room: capacity of the part, in entries.
        rows_each: rows per entry.
    """

    def __init__(self, side_table: SideTable, name: str, begin: int, room: int, rows_each: int) -> None:
        self.side_table, self.begin, self.room = side_table, begin, room
        self.end = begin + room * rows_each
        self._name, self._rows_each = name, rows_each
        self._places, self._first_missing = 0, 0

    def take_new(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the rows (N,) of entries added since the last call, and their values as bytes."""
        side_table = self.side_table
        if (side_table.capacity, side_table.next_number) == (self._places, self._first_missing):
            return _NO_ROWS, _NO_VALUES
        # A change of capacity moves all entries.
        first = self._first_missing if self._places == side_table.capacity else 0
        numbers = np.arange(max(first, side_table.oldest), side_table.next_number)
        self._places, self._first_missing = side_table.capacity, side_table.next_number
        places = numbers % side_table.capacity
        rows = self.begin + (places[:, None] * self._rows_each + np.arange(self._rows_each)).ravel()
        return rows, side_table.values(self._name)[places]


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_NO_STEPS = -1
_NO_ROWS, _NO_VALUES = np.empty((0,), np.int64), np.empty((0, 0), np.uint8)


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes of memory available to tensors on a CUDA device; None for other devices."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
