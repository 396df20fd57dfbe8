"""Memory addresses of a ring's arrays, for compiled code."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels import gather, insert
from storages.core.kernels.memory import data_address
from storages.core.ring.column import Column
from storages.core.ring.frames import FrameColumn
from storages.core.ring.layout import FieldKey, Layout, text
from storages.core.ring.side_table import SideTable
from storages.transition import ACT, DONE, DONE2, FLAGS, IREW, IVAL, LOGP, OBS, OBS2, REW, REWC, TRUNC2, VAL

Selection: TypeAlias = frozenset[str | FieldKey]
"""Names of fields, for all of their leaves, and keys of single leaves."""

_LARGEST_PREFETCHED_BYTES = 1024
"""Beyond it, the processor's own prefetching suffices."""


class AddressTable:
    """All addresses of a ring's columns and side table that compiled code uses.

    The columns' arrays never move; those of the side table do when it grows. The owner then makes a new table, so that
    no address outlives its array.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        columns: the columns that samples fill.
        computed: columns of computed fields; the owner calls `find_plans` when these change.
        finals: the side table of final observations.
        ended: (E,) bool, whether each episode ended in the newest step.
    """

    def __init__(
        self,
        layout: Layout,
        columns: Mapping[FieldKey, Column],
        computed: Mapping[FieldKey, Column],
        finals: SideTable,
        ended: NDArray[np.bool_],
    ) -> None:
        self._columns, self._computed, self._finals = columns, computed, finals
        self.keys: list[FieldKey] = []
        """The leaves of a step, in the order of ``sources``."""
        fields: list[tuple[int, ...]] = []
        for key, column in columns.items():
            source = len(self.keys)
            self.keys += [key, column.successor] if column.successor else [key]
            if not isinstance(column, FrameColumn):
                dtype = column.data.dtype
                float_bytes = dtype.itemsize // (2 if dtype.kind == "c" else 1) if must_be_finite(key, dtype) else 0
                follower, final = (source + 1, self._final(key)) if column.successor else (-1, 0)
                address, stride = data_address(column.data), column.data.strides[1]
                fields.append((address, stride, column.width, source, follower, float_bytes, final))
        rows, envs = finals.numbers.shape
        layouts = [layout[key] for key in self.keys]
        self._fields = np.array(fields, insert.FIELD)
        self.sources = np.zeros(len(self.keys), np.int64)
        """(S,): addresses of the arrays of the step to insert."""
        self.step_bytes = np.array([envs * leaf.count * leaf.dtype.itemsize for leaf in layouts], np.int64)
        """(S,): bytes of a step in each source."""
        self._lengths = np.array([length for leaf in layouts for length in (envs, *leaf.shape)], np.int64)
        self.context = np.zeros(1, insert.CONTEXT)
        """The CONTEXT of compiled insertion."""
        context = self.context[0]
        context["fields"], context["field_count"] = data_address(self._fields), len(fields)
        context["sources"], context["source_count"] = data_address(self.sources), len(self.keys)
        context["step_bytes"], context["lengths"] = data_address(self.step_bytes), data_address(self._lengths)
        for name, flag in (("done", DONE), ("terminated", DONE2), ("truncated", TRUNC2)):
            context[name] = self.keys.index((flag,)) if self.keys else 0
        context["rows"], context["envs"], context["ended"] = rows, envs, data_address(ended)
        context["final_numbers"] = data_address(finals.numbers)
        context["final_stride"] = finals.numbers.strides[1]
        context["queue"], context["capacity"] = data_address(finals.queue), finals.capacity
        self.context_address = data_address(self.context)
        self._plans: dict[tuple[FieldKey, ...], dict[Collection[str | FieldKey] | None, GatherPlan]] = {}
        self.find_plans()

    def find_plans(self) -> None:
        """Select the gather plans that were made for the present set of computed fields."""
        self.plans = self._plans.setdefault(tuple(self._computed), {})
        """Plans by selection; None is everything."""

    def plan(self, wanted: Selection | None) -> "GatherPlan":
        """Make and cache the plan for gathering a selection."""
        fields: list[tuple[int, ...]] = []
        leaves: list[_Leaf] = []
        stacks: list[_Stack] = []
        here, following = _Regions(), _Regions()
        for key, column in (*self._columns.items(), *self._computed.items()):
            is_wanted = _is_wanted(key, wanted)
            next_is_wanted = column.successor is not None and _is_wanted(column.successor, wanted)
            if isinstance(column, FrameColumn):
                if is_wanted or next_is_wanted:
                    stacks.append(_Stack(key, column, is_wanted, next_is_wanted))
                continue
            address, stride = data_address(column.data), column.data.strides[1]
            dtype = np.dtype(np.float32) if key[0] in FLAGS else column.layout.dtype
            value_bytes = column.layout.count * dtype.itemsize
            if is_wanted:
                kind = _KINDS[key[0] in (DONE2, TRUNC2), key[0] in FLAGS]
                here.add(address, stride, column.width)
                fields.append((address, stride, column.width, kind, 0, 0))
                leaves.append(_Leaf(key, column.layout.shape, dtype, value_bytes))
            if next_is_wanted and column.successor is not None:
                following.add(address, stride, column.width)
                mask = self._finals.capacity - 1
                fields.append((address, stride, column.width, gather.FOLLOWING, self._final(key), mask))
                leaves.append(_Leaf(column.successor, column.layout.shape, dtype, value_bytes))
        numbers = self._finals.numbers
        here.add(data_address(numbers), numbers.strides[1], numbers.itemsize)
        tables = np.array(fields, gather.FIELD), here.array(), following.array()
        # Another thread may make the same plan; the assignment is atomic.
        plan = self.plans[wanted] = GatherPlan(*tables, numbers, leaves, stacks)
        return plan

    def _final(self, key: FieldKey) -> int:
        return data_address(self._finals.values(text(key)))


class GatherPlan:
    """Plan for copying a selection of leaves into a batch.

    Args:
        fields: (F,), the copies that the kernel makes.
        here: (R,), regions that it reads in the rows of windows.
        following: (R,), regions that it reads in the rows after them.
        numbers: (rows, E), entry numbers of final observations.
        leaves: the leaves of ``fields``, in the same order.
        stacks: the columns of frame stacks, which are gathered separately.
    """

    def __init__(
        self,
        fields: NDArray[np.void],
        here: NDArray[np.void],
        following: NDArray[np.void],
        numbers: NDArray[np.int32],
        leaves: "list[_Leaf]",
        stacks: "list[_Stack]",
    ) -> None:
        self._tables = fields, here, following
        self._plan = np.zeros(1, gather.PLAN)
        plan = self._plan[0]
        for name, table in zip(("fields", "here", "following"), self._tables, strict=True):
            plan[name] = data_address(table)
            plan["field_count" if name == "fields" else f"{name}_count"] = len(table)
        plan["final_numbers"], plan["final_stride"] = data_address(numbers), numbers.strides[1]
        plan["rows"], plan["envs"] = numbers.size, numbers.shape[1]
        self.address = data_address(self._plan)
        self._leaves, self.stacks = leaves, stacks
        self.flat = not stacks and all(len(leaf.key) == 1 for leaf in leaves)
        """Whether no gathered field is a dict or a frame stack."""
        self.batch = self.lay_out(0)
        """The layout of the last batch, reused for batches of the same size."""

    def lay_out(self, size: int) -> "BatchLayout":
        """Compute and cache the memory layout of a batch of ``size`` transitions."""
        places: list[_Place] = []
        offset = 0
        for leaf in self._leaves:
            places.append((leaf.key, (size, *leaf.shape), leaf.dtype, offset))
            offset += -(-leaf.value_bytes * size // gather.ALIGNMENT_BYTES) * gather.ALIGNMENT_BYTES
        # A single assignment, because another thread may gather too.
        self.batch = BatchLayout(size, places, offset)
        return self.batch


class BatchLayout(NamedTuple):
    """Memory layout of a batch."""

    size: int
    places: "list[_Place]"
    length_bytes: int


def must_be_finite(key: FieldKey, dtype: np.dtype[np.generic]) -> bool:
    """Return whether a leaf is checked for NaN and infinity, unless ``allow_nonfinite``."""
    return key[0] in _FINITE and dtype.kind in "fc"


def _is_wanted(key: FieldKey, wanted: Selection | None) -> bool:
    return wanted is None or key[0] in wanted or key in wanted


@dataclass(frozen=True)
class _Leaf:
    key: FieldKey
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value_bytes: int


class _Stack(NamedTuple):
    key: FieldKey
    column: FrameColumn
    own: bool
    following: bool


class _Regions:
    """Regions of a row to prefetch, with neighbouring ones merged."""

    def __init__(self) -> None:
        self._begins: dict[int, tuple[int, int]] = {}

    def add(self, address: int, stride: int, width: int) -> None:
        """Add a region."""
        if width > _LARGEST_PREFETCHED_BYTES:
            return
        for begin, (other_stride, other_end) in self._begins.items():
            first, last = min(begin, address), max(other_end, address + width)
            if other_stride == stride and last - first <= stride:
                del self._begins[begin]
                self._begins[first] = (stride, last)
                return
        self._begins[address] = (stride, address + width)

    def array(self) -> NDArray[np.void]:
        """Return (R,) regions."""
        regions = [(begin, stride, end - begin) for begin, (stride, end) in self._begins.items()]
        return np.array(regions, gather.REGION)


_Place: TypeAlias = tuple[FieldKey, tuple[int, ...], np.dtype[Any], int]
"""A leaf of a batch: key, shape, dtype and byte offset."""
_KINDS = {
    (False, False): gather.HERE,
    (False, True): gather.HERE_FLAG,
    (True, False): gather.LAST,
    (True, True): gather.LAST_FLAG,
}
"""Kinds of copies, by whether a field is of a window's last transition, and whether it is a flag."""
_FINITE = frozenset({OBS, OBS2, ACT, REW, IREW, REWC, VAL, IVAL, LOGP})
