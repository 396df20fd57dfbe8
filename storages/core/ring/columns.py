"""The memory of a ring: a column (rows, E, ...) for each leaf of a transition, and copies of rows out of all of them.

A batch is made of transitions from anywhere, so what is small of one transition lies together, in a record: then a
transition is one place in memory instead of ten. What is read as a whole, column by column, like a rollout, lies apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels import gather as kernel
from storages.core.kernels.memory import data_address
from storages.core.ring.column import Column
from storages.core.ring.frames import FrameColumn
from storages.core.ring.insertion import RingWriter
from storages.core.ring.layout import FieldKey, Layout, LeafLayout, nest, text
from storages.core.ring.side_table import NOTHING, SideTable
from storages.core.ring.snapshot import FINAL, HAS_FINAL, ArrayKey, Fragments, RowSpan, slots, spans
from storages.transition import DONE2, FLAGS, SUCCESSORS, TRUNC2, Array

SUCCESSORS_OF = {first: successor for successor, first in SUCCESSORS.items()}

_LARGEST_IN_RECORD_BYTES = 1024
_LARGEST_ASKED_FOR_BYTES = 1024
"""Of what is longer the processor itself sees what comes next."""
_NUMBER = ("",)
"""Where, in a record, the number of what stands aside is."""


class Columns:
    """All columns of a ring, and what stands aside of them.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        rows: steps that the memory holds.
        num_envs: environments in a step.
        in_records: whether what is small of a transition lies together.
        stacked: which leaves of the observation are stacks of the last frames.
    """

    def __init__(
        self, layout: Layout, rows: int, num_envs: int, in_records: bool, stacked: frozenset[FieldKey] = frozenset()
    ) -> None:
        self._arguments = (layout, rows, num_envs, in_records, stacked)
        self._rows, self._num_envs = rows, num_envs
        kept = {path: leaf for path, leaf in layout.items() if path[0] not in SUCCESSORS and path not in stacked}
        together = {path: leaf for path, leaf in kept.items() if in_records and _size(leaf) <= _LARGEST_IN_RECORD_BYTES}
        offsets, self._record_bytes = _record(together | {_NUMBER: LeafLayout((), np.dtype(np.int32))})
        self._records = np.zeros((rows, num_envs, self._record_bytes), np.uint8)
        self._columns: dict[FieldKey, Column] = {}
        for path, leaf in kept.items():
            own = path not in offsets
            data = np.zeros((rows, num_envs, *leaf.shape), leaf.dtype) if own else self._field(leaf, offsets[path])
            self._columns[path] = Column(leaf, data, _successor_of(path, layout), own)
        for path in stacked:
            self._columns[path] = FrameColumn(layout[path], rows, num_envs, _successor_of(path, layout))
        self.stacked = {path: column for path, column in self._columns.items() if isinstance(column, FrameColumn)}
        """The columns of stacked frames."""
        self.computed: dict[FieldKey, Column] = {}
        """The columns of fields that were computed from the others."""
        self.aside = SideTable(self._field(LeafLayout((), np.dtype(np.int32)), offsets[_NUMBER]))
        for path, column in self.chained():
            self.aside.add(text(path), column.width)
        self._plans: dict[frozenset[FieldKey] | None, _Plan] = {}
        self._places_of_plans = self.aside.places

    # What there is

    def __contains__(self, path: FieldKey) -> bool:
        return path in self._columns or path in self.computed

    def __getitem__(self, path: FieldKey) -> Column:
        return self.computed[path] if path in self.computed else self._columns[path]

    def paths(self) -> list[FieldKey]:
        """Of all columns."""
        return [*self._columns, *self.computed]

    def inserted(self) -> Iterable[tuple[FieldKey, Column]]:
        """The columns that samples fill."""
        return self._columns.items()

    def chained(self) -> Iterable[tuple[FieldKey, Column]]:
        """The columns whose next row is what followed."""
        return ((path, column) for path, column in self._columns.items() if column.successor)

    @property
    def nbytes(self) -> int:
        """Bytes of all memory."""
        columns = (*self._columns.values(), *self.computed.values())
        return self._records.nbytes + self.aside.nbytes + sum(column.nbytes for column in columns)

    # What is computed from the others

    def add_computed(self, path: FieldKey, layout: LeafLayout) -> None:
        """Make room for a field that is computed from the others."""
        if path not in self.computed:
            data = np.zeros((self._rows, self._num_envs, *layout.shape), layout.dtype)
            self.computed[path] = Column(layout, data, None, own=True)
            self._plans = {}

    def is_computed(self, path: FieldKey) -> bool:
        """Whether a field was computed from what is stored now."""
        return path in self.computed

    def drop_computed(self) -> None:
        """What is stored has changed."""
        if self.computed:
            self.computed, self._plans = {}, {}

    # In

    @cached_property
    def inlet(self) -> RingWriter:
        """The way of steps into all columns."""
        return RingWriter(self._arguments[0], self._num_envs, self.inserted(), self.aside, self._rows)

    # Out

    def put_aside(self, slot: int, following: int, envs: NDArray[np.int64]) -> None:
        """Keep what some transitions of a row led to: it lies in the row after it and will be overwritten."""
        places = self.aside.reserve(slot, envs)
        for path, column in self.chained():
            self.aside.values(text(path))[places] = column.bytes_in(following, envs)

    def stretch(self, env: int, first: int, end: int) -> dict[FieldKey, Array]:
        """As of :meth:`storages.core.ring.ring.Ring.stretch`."""
        rows, count = self._rows, end - first
        number = int(self.aside.numbers[(end - 1) % rows, env])
        copies: dict[FieldKey, Array] = {}
        for path, column in self._columns.items():
            copy = np.zeros((count + 1, *column.data.shape[2:]), column.data.dtype)
            done = 0
            for span in spans(first, end, rows):
                copy[done : done + span.stop - span.start] = column.data[span, env]
                done += span.stop - span.start
            if column.successor:
                aside = self.aside.values(text(path))[number % self.aside.places]
                copy[count] = (
                    column.data[end % rows, env] if number < 0 else aside.view(copy.dtype).reshape(copy.shape[1:])
                )
            copies[path] = copy
        return copies

    def gather(
        self, first: NDArray[np.int64], last: NDArray[np.int64], paths: frozenset[FieldKey] | None = None
    ) -> dict[str, Any]:
        """Copies of the leaves of some windows, as arrays (B, ...), flags as float32.

        Args:
            first: (B,) transitions that the windows begin with.
            last: (B,) those that they end with, of which is taken what followed (OBS2, RHS2, DONE2, TRUNC2).
            paths: which leaves; all where None.
        """
        plan, size = self._plan(paths), len(first)
        places, length = plan.places(size)
        out = np.empty(length, np.uint8)
        kernel.gather_fields(
            plan.fields,
            plan.here,
            plan.following,
            plan.aside_address,
            self._record_bytes,
            self._rows * self._num_envs,
            self._num_envs,
            first,
            last,
            out,
        )
        if plan.simple:
            return {key: np.ndarray(shape, dtype, out, offset) for (key,), shape, dtype, offset in places}
        flat: dict[FieldKey, Array] = {
            path: np.ndarray(shape, dtype, out, offset) for path, shape, dtype, offset in places
        }
        for path, column in plan.stacks:
            assert column.successor is not None
            own, following = (paths is None or wanted in paths for wanted in (path, column.successor))
            stacks = column.gather(first, last, self.aside, text(path), own, following)
            flat |= {
                p: s for p, s, wanted in zip((path, column.successor), stacks, (own, following), strict=True) if wanted
            }
        return nest(flat)

    def _plan(self, paths: frozenset[FieldKey] | None) -> "_Plan":
        if self._places_of_plans != self.aside.places:
            # The places lie elsewhere now.
            self._plans, self._places_of_plans = {}, self.aside.places
        # Another thread may gather too, and find the same: no plan is taken out of what it has just put there.
        plans = self._plans
        if paths not in plans:
            plans[paths] = self._made_plan(paths)
        return plans[paths]

    def _made_plan(self, paths: frozenset[FieldKey] | None) -> "_Plan":
        fields, leaves, stacks = [], [], []
        here, following = _Regions(), _Regions()
        for path in self.paths():
            column = self[path]
            if isinstance(column, FrameColumn):
                if paths is None or not paths.isdisjoint((path, column.successor)):
                    stacks.append((path, column))
                continue
            address, stride = data_address(column.data), column.data.strides[1]
            mask = self.aside.places - 1
            for wanted, follows in ((path, False), (column.successor, True)):
                if wanted is None or (paths is not None and wanted not in paths):
                    continue
                dtype = np.dtype(np.float32) if path[0] in FLAGS else column.layout.dtype
                if follows:
                    kind, aside = kernel.FOLLOWING, data_address(self.aside.values(text(path)))
                    following.add(address, stride, column.width)
                else:
                    kind, aside = _KINDS[path[0] in (DONE2, TRUNC2), path[0] in FLAGS], 0
                    here.add(address, stride, column.width)
                fields.append((address, stride, column.width, kind, aside, mask))
                leaves.append((wanted, column.layout.shape, dtype, column.layout.count * dtype.itemsize))
        numbers = data_address(self.aside.numbers)
        here.add(numbers, self._record_bytes, self.aside.numbers.itemsize)
        return _Plan(
            np.array(fields, np.int64).reshape(-1, 6), here.array(), following.array(), numbers, leaves, stacks
        )

    # Parts

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Let go of what stands aside of the oldest rows."""
        self.aside.free_all(slots)
        for column in self._columns.values():
            column.drop(slots)

    def part(self, first: int, end: int, told: int) -> dict[ArrayKey, Fragments]:
        """Rows [first, end), as views good until they are overwritten, and copies of what else belongs to them.

        Args:
            first: number of the first row.
            end: number after the last.
            told: the first row of which is said what stands aside of it; one less than ``first``, or as much.
        """
        arrays = {
            ArrayKey(role, path): pieces
            for path, column in self._columns.items()
            for role, pieces in column.part(first, end).items()
        }
        numbers, aside = self.aside.saved(slots(told, end, self._rows))
        arrays[ArrayKey(HAS_FINAL)] = (numbers >= 0,)
        return arrays | {ArrayKey(FINAL, path): (aside[text(path)],) for path, _ in self.chained()}

    def put(self, part: RowSpan) -> None:
        """Take up a part behind the rows before it."""
        rows, end, taken = self._rows, part.steps, part.array(HAS_FINAL)
        told = end - len(taken)
        self.aside.withdraw(slots(told, part.first, rows))
        self.aside.free_all(slots(part.first + 1, end + 1, rows))
        for path, column in self._columns.items():
            column.put(path, part)
        values = {text(path): part.array(FINAL, path) for path, _ in self.chained()}
        self.aside.append(slots(told, end, rows), np.where(taken, 0, NOTHING).astype(np.int32), values)
        self.drop_computed()

    # Copies of the whole

    def __getstate__(self) -> dict[str, Any]:
        # Views into the records and addresses would not be those of the copy.
        return {
            "arguments": self._arguments,
            "records": self._records,
            "apart": {path: column for path, column in self._columns.items() if column.own},
            "computed": self.computed,
            "aside": {name: value for name, value in self.aside.__dict__.items() if name != "numbers"},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        Columns.__init__(self, *state["arguments"])
        self._records[...] = state["records"]
        self._columns.update(state["apart"])
        self.stacked = {path: column for path, column in self._columns.items() if isinstance(column, FrameColumn)}
        self.computed = state["computed"]
        self.aside.__dict__.update(state["aside"])

    def _field(self, leaf: LeafLayout, offset: int) -> Array:
        """A view of a part of all records."""
        inner = np.empty(leaf.shape, leaf.dtype).strides
        strides = (self._num_envs * self._record_bytes, self._record_bytes, *inner)
        return np.ndarray((self._rows, self._num_envs, *leaf.shape), leaf.dtype, self._records.data, offset, strides)


_ALIGNED = kernel.ALIGNMENT_BYTES
_Place: TypeAlias = tuple[FieldKey, tuple[int, ...], np.dtype[Any], int]
"""A leaf of a batch: path, shape, dtype, and the byte at which it begins."""
_KINDS = {
    (False, False): kernel.HERE,
    (False, True): kernel.HERE_FLAG,
    (True, False): kernel.LAST,
    (True, True): kernel.LAST_FLAG,
}
"""By whether a field is of the last transition of a window, and whether it is a flag."""


@dataclass
class _Plan:
    """How a choice of leaves is copied, as the kernel wants it; good while the arrays lie where they lie."""

    fields: NDArray[np.int64]
    here: NDArray[np.int64]
    following: NDArray[np.int64]
    aside_address: int
    leaves: list[tuple[FieldKey, tuple[int, ...], np.dtype[Any], int]]
    """FieldKey, shape, dtype and bytes of each, in the order of ``fields``."""
    stacks: list[tuple[FieldKey, FrameColumn]]
    """Those of which something is wanted."""
    _last: tuple[int, tuple[list[_Place], int]] = (-1, ([], 0))

    def __post_init__(self) -> None:
        self.simple = not self.stacks and all(len(path) == 1 for path, *_ in self.leaves)
        """Whether what is gathered are fields of one leaf each, and no stacks."""

    def places(self, size: int) -> tuple[list[_Place], int]:
        """Where in the memory of a batch its leaves are, and the bytes of all."""
        last_size, places = self._last
        if size != last_size:
            places = self._made_places(size)
            # At once, because another thread may gather too.
            self._last = size, places
        return places

    def _made_places(self, size: int) -> tuple[list[_Place], int]:
        places: list[_Place] = []
        offset = 0
        for path, shape, dtype, bytes_each in self.leaves:
            places.append((path, (size, *shape), dtype, offset))
            offset += (bytes_each * size + _ALIGNED - 1) // _ALIGNED * _ALIGNED
        return places, offset


class _Regions:
    """What a kernel asks the memory for: neighbours in a record once."""

    def __init__(self) -> None:
        self._begins: dict[int, tuple[int, int]] = {}

    def add(self, address: int, stride: int, width: int) -> None:
        """Some bytes of every row."""
        if width > _LARGEST_ASKED_FOR_BYTES:
            return
        for begin, (other_stride, other_end) in self._begins.items():
            first, last = min(begin, address), max(other_end, address + width)
            if other_stride == stride and last - first <= stride:
                del self._begins[begin]
                self._begins[first] = (stride, last)
                return
        self._begins[address] = (stride, address + width)

    def array(self) -> NDArray[np.int64]:
        """(regions, 3): address, stride, bytes."""
        regions = [(begin, stride, end - begin) for begin, (stride, end) in self._begins.items()]
        return np.array(regions, np.int64).reshape(-1, 3)


def _record(leaves: Mapping[FieldKey, LeafLayout]) -> tuple[dict[FieldKey, int], int]:
    """Where each leaf begins in a record, each aligned, and how long a record is."""
    offsets, end, alignment = {}, 0, 1
    for path, leaf in sorted(leaves.items(), key=lambda item: -item[1].dtype.alignment):
        offsets[path] = end
        end += _size(leaf)
        alignment = max(alignment, leaf.dtype.alignment)
    return offsets, -(-end // alignment) * alignment


def _size(leaf: LeafLayout) -> int:
    return leaf.count * leaf.dtype.itemsize


def _successor_of(path: FieldKey, layout: Layout) -> FieldKey | None:
    successor = (SUCCESSORS_OF.get(path[0], ""), *path[1:])
    return successor if successor in layout else None
