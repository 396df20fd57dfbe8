"""The memory of a ring: a column (rows, E, ...) for each leaf of a transition.

A replay batch consists of random transitions, so the small leaves of a transition are interleaved in a record, and a
transition is one access to memory instead of ten. A rollout is read column by column, and stored so.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.gather import gather_fields
from storages.core.ring.addresses import AddressTable, Selection
from storages.core.ring.column import Column
from storages.core.ring.frames import FrameColumn
from storages.core.ring.insertion import RingWriter
from storages.core.ring.layout import FieldKey, Layout, LeafLayout, nest, text
from storages.core.ring.side_table import NOTHING, SideTable
from storages.core.ring.snapshot import CUT_BEFORE, FINAL, HAS_FINAL, ArrayKey, Fragments, RowSpan, slots, spans
from storages.transition import DONE, SUCCESSORS, TRUNC2, Array

SUCCESSORS_OF = {first: successor for successor, first in SUCCESSORS.items()}

_LARGEST_IN_RECORD_BYTES = 1024
_NUMBER = ("",)
"""Key of the transition's entry number in the side table, within a record."""


class Columns:
    """All columns of a ring, the side table of final observations, and the addresses of both.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        rows: steps that the memory holds.
        num_envs: environments in a step.
        in_records: interleave the small leaves of a transition in a record.
        stacked: the leaves of the observation that are stacks of frames.
    """

    def __init__(
        self, layout: Layout, rows: int, num_envs: int, in_records: bool, stacked: frozenset[FieldKey] = frozenset()
    ) -> None:
        self._arguments = (layout, rows, num_envs, in_records, stacked)
        self._rows, self._num_envs = rows, num_envs
        kept = {path: leaf for path, leaf in layout.items() if path[0] not in SUCCESSORS and path not in stacked}
        together = {path: leaf for path, leaf in kept.items() if in_records and _size(leaf) <= _LARGEST_IN_RECORD_BYTES}
        offsets, self._record_bytes = _record(together | {_NUMBER: LeafLayout((), np.dtype(np.int32))})
        self.records = np.zeros((rows, num_envs, self._record_bytes), np.uint8)
        """(rows, E, bytes): the leaves that are interleaved."""
        self.inserted: dict[FieldKey, Column] = {}
        """The columns that samples fill."""
        for path, leaf in kept.items():
            own = path not in offsets
            data = np.zeros((rows, num_envs, *leaf.shape), leaf.dtype) if own else self._field(leaf, offsets[path])
            self.inserted[path] = Column(leaf, data, _successor_of(path, layout), own)
        for path in stacked:
            self.inserted[path] = FrameColumn(layout[path], rows, num_envs, _successor_of(path, layout))
        self.stacked = {path: column for path, column in self.inserted.items() if isinstance(column, FrameColumn)}
        """The columns of stacked frames."""
        self.computed: dict[FieldKey, Column] = {}
        """The columns of computed fields."""
        self._dropped: dict[FieldKey, Column] = {}
        numbers = self._field(LeafLayout((), np.dtype(np.int32)), offsets[_NUMBER])
        self.finals = SideTable(numbers, WeakMethod(self._find_addresses))
        """Final observations: next observations that are not stored in the next row."""
        self.final_numbers = numbers.reshape(-1, 1)
        """(rows * E, 1): number of each row's final observation, -1 where the next row continues its episode."""
        for key, column in self.chained():
            self.finals.add(text(key), column.width)
        self.ended = np.zeros(num_envs, np.bool_)
        """(E,): whether each episode ended in the newest step."""
        self.addresses = AddressTable(layout, self.inserted, self.computed, self.finals, self.ended)
        """Memory addresses of all arrays; replaced when the side table has grown."""
        self.writer = RingWriter(layout, num_envs, self.addresses, self.stacked, self.finals, self.ended)

    # Access

    def __contains__(self, key: FieldKey) -> bool:
        return key in self.inserted or key in self.computed

    def __getitem__(self, key: FieldKey) -> Column:
        return self.computed[key] if key in self.computed else self.inserted[key]

    def data(self, key: str) -> Array:
        """Return a view (rows, E, ...) of a field, row ``t`` in slot ``t % rows``; of stacked frames, the newest ones.

        The contents of rows that are not live are undefined.
        """
        # Called for each batch: a further method would cost time.
        return (self.inserted.get((key,)) or self.computed[(key,)]).data

    def chained(self) -> Iterable[tuple[FieldKey, Column]]:
        """Yield the columns that have a successor: those whose next row holds the next values."""
        return ((key, column) for key, column in self.inserted.items() if column.successor)

    @property
    def nbytes(self) -> int:
        """Bytes of all memory."""
        columns = (*self.inserted.values(), *self.computed.values(), *self._dropped.values())
        return self.records.nbytes + self.finals.nbytes + sum(column.nbytes for column in columns)

    @property
    def bytes_of_a_step(self) -> int:
        """Bytes of a step, without side tables."""
        return self._num_envs * sum(column.width for column in self.inserted.values())

    @property
    def tables(self) -> list[SideTable]:
        """The side tables: of final observations, and of padding frames, one for each leaf of stacked frames."""
        return [self.finals, *(column.padding for column in self.stacked.values())]

    # Fields that are computed from the others

    def add_computed(self, key: str, layout: LeafLayout) -> None:
        """Add a computed field; it is dropped when the other fields change."""
        path = (key,)
        if path in self.computed:
            return
        column = self._dropped.pop(path, None)
        if column is None:
            column = Column(layout, np.zeros((self._rows, self._num_envs, *layout.shape), layout.dtype), None, own=True)
        self.computed[path] = column
        self.addresses.find_plans()

    def drop_computed(self) -> None:
        """Drop the computed fields, because others have changed; keep their memory and gather plans for reuse."""
        if self.computed:
            self._dropped.update(self.computed)
            self.computed.clear()
            self.addresses.find_plans()

    # Copies

    def store_finals(self, slot: int, following: int, envs: NDArray[np.int64]) -> None:
        """Copy next observations of a row to the side table, from the following row, which is overwritten next."""
        places = self.finals.append(slot, envs)
        for key, column in self.chained():
            self.finals.values(text(key))[places] = column.bytes_in(following, envs)

    def store_interrupted(self, arrays: Mapping[FieldKey, Array], step: int) -> NDArray[np.bool_]:
        """Store next observations of the newest step that the observations of a step to be inserted differ from.

        They differ where experience was interrupted without an end of the episode: by a run resumed with new episodes,
        or between slices of different workers.

        Args:
            arrays: (E, ...), the step.
            step: its number.

        Returns:
            (E,), where they differ.
        """
        slot = step % self._rows
        differs: NDArray[np.bool_] = arrays[(DONE,)][:, 0] != self.ended
        for path, column in self.chained():
            column_differs = column.differs(slot, arrays[path])
            if column_differs is not None:
                differs |= column_differs
        differs &= ~self.ended
        if differs.any():
            self.store_finals((step - 1) % self._rows, slot, np.flatnonzero(differs))
        return differs

    def steps_of(self, env: int, first: int, end: int) -> dict[FieldKey, Array]:
        """Return copies of an environment's rows [first, end), and in one row more the last one's next values.

        Of stacked frames only the newest are copied; in a leaf without a successor the last row is zero.
        """
        rows, count = self._rows, end - first
        number = int(self.finals.numbers[(end - 1) % rows, env])
        copies: dict[FieldKey, Array] = {}
        for key, column in self.inserted.items():
            copy = np.zeros((count + 1, *column.data.shape[2:]), column.data.dtype)
            done = 0
            for span in spans(first, end, rows):
                copy[done : done + span.stop - span.start] = column.data[span, env]
                done += span.stop - span.start
            if column.successor:
                final = self.finals.values(text(key))[number % self.finals.capacity]
                copy[count] = (
                    column.data[end % rows, env] if number < 0 else final.view(copy.dtype).reshape(copy.shape[1:])
                )
            copies[key] = copy
        return copies

    def gather(
        self, transitions: NDArray[np.int64], wanted: Selection | None = None, last: NDArray[np.int64] | None = None
    ) -> dict[str, Any]:
        """Copy leaves of n-step windows as arrays (B, ...), flags as float32, or dicts of arrays for dict fields.

        Args:
            transitions: (B,) first transitions of the windows.
            wanted: names of fields, or keys of leaves; all where None.
            last: (B,) their last transitions, for OBS2, RHS2, DONE2 and TRUNC2; ``transitions`` where None.
        """
        first = np.ascontiguousarray(transitions)
        last = first if last is None else np.ascontiguousarray(last)
        plan = self.addresses.plans.get(wanted) or self.addresses.plan(wanted)
        batch = plan.batch if plan.batch.size == len(first) else plan.lay_out(len(first))
        out = np.empty(batch.length_bytes, np.uint8)
        gather_fields(plan.address, first, last, out)
        if plan.flat:
            return {key[0]: np.ndarray(shape, dtype, out, offset) for key, shape, dtype, offset in batch.places}
        flat: dict[FieldKey, Array] = {
            key: np.ndarray(shape, dtype, out, offset) for key, shape, dtype, offset in batch.places
        }
        for stack in plan.stacks:
            column = stack.column
            own, following = column.gather(first, last, self.finals, text(stack.key), stack.own, stack.following)
            if stack.own:
                flat[stack.key] = own
            if stack.following and column.successor is not None:
                flat[column.successor] = following
        return nest(flat)

    def gather_leaf(self, key: FieldKey, transitions: NDArray[np.int64]) -> Array:
        """Copy one leaf of some transitions, (B, ...), such as a part of a dict observation."""
        value: Any = self.gather(transitions, frozenset((key,)))
        for name in key:
            value = value[name]
        leaf: Array = value
        return leaf

    # Spans of rows

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Free the side tables' entries of the oldest rows."""
        self.finals.free_all(slots)
        for column in self.inserted.values():
            column.drop(slots)

    def snapshot(self, first: int, end: int, from_row: int) -> dict[ArrayKey, Fragments]:
        """Return rows [first, end) as views, valid until overwritten, and copies of their side tables' entries.

        Args:
            first: number of the first row.
            end: number after the last.
            from_row: the first row whose final observation is included: ``first``, or the row before it.
        """
        arrays = {
            ArrayKey(role, path): pieces
            for path, column in self.inserted.items()
            for role, pieces in column.snapshot(first, end).items()
        }
        numbers, finals = self.finals.saved(slots(from_row, end, self._rows))
        arrays[ArrayKey(HAS_FINAL)] = (numbers >= 0,)
        arrays[ArrayKey(CUT_BEFORE)] = (self.inserted[(TRUNC2,)].data[slots(from_row, first, self._rows), :, 0],)
        return arrays | {ArrayKey(FINAL, path): (finals[text(path)],) for path, _ in self.chained()}

    def append_span(self, part: RowSpan) -> None:
        """Append the rows of a span after the rows that precede it."""
        rows, end, has_final = self._rows, part.steps, part.array(HAS_FINAL)
        from_row = end - len(has_final)
        self.finals.free_newest(slots(from_row, part.first, rows))
        self.finals.free_all(slots(part.first + 1, end + 1, rows))
        for path, column in self.inserted.items():
            column.append_span(path, part)
        self.inserted[(TRUNC2,)].data[slots(from_row, part.first, rows), :, 0] = part.array(CUT_BEFORE)
        values = {text(path): part.array(FINAL, path) for path, _ in self.chained()}
        self.finals.extend(slots(from_row, end, rows), np.where(has_final, 0, NOTHING).astype(np.int32), values)
        self.drop_computed()

    # Copying and pickling

    def __getstate__(self) -> dict[str, Any]:
        # Views into the records, and addresses, are made again.
        return {
            "arguments": self._arguments,
            "records": self.records,
            "apart": {path: column for path, column in self.inserted.items() if column.own},
            "computed": self.computed,
            "ended": self.ended,
            "finals": {name: v for name, v in vars(self.finals).items() if name not in ("numbers", "_grown")},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        Columns.__init__(self, *state["arguments"])
        self.records[...], self.ended[...] = state["records"], state["ended"]
        self.inserted.update(state["apart"])
        self.stacked = {key: column for key, column in self.inserted.items() if isinstance(column, FrameColumn)}
        self.computed.update(state["computed"])
        vars(self.finals).update(state["finals"])
        layout, num_envs = self._arguments[0], self._num_envs
        self.writer = RingWriter(layout, num_envs, self.addresses, self.stacked, self.finals, self.ended)
        self._find_addresses()

    def _find_addresses(self) -> None:
        """Make the addresses again, after the side table has grown."""
        layout = self._arguments[0]
        self.addresses = AddressTable(layout, self.inserted, self.computed, self.finals, self.ended)
        self.writer.addresses = self.addresses

    def _field(self, leaf: LeafLayout, offset: int) -> Array:
        """Return a view of one field of all records."""
        inner = np.empty(leaf.shape, leaf.dtype).strides
        strides = (self._num_envs * self._record_bytes, self._record_bytes, *inner)
        return np.ndarray((self._rows, self._num_envs, *leaf.shape), leaf.dtype, self.records.data, offset, strides)


def _record(leaves: Mapping[FieldKey, LeafLayout]) -> tuple[dict[FieldKey, int], int]:
    """Return the aligned offset of each leaf in a record, and the length of a record in bytes."""
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
