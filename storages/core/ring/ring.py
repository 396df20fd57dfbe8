"""The ring: columns of transitions, each observation once.

A column is an array ``(rows, E, ...)`` of which ``size`` rows are live at a time. What a step begins with (OBS, RHS) is
also what the step before it led to (OBS2, RHS2), so only the former is stored and the latter read from the next row.
That needs one row more than ``size``, for what the newest step led to, and a place aside for what episodes ended with,
because the row after an end begins the next episode. Of an observation that is a stack of the last frames, a row holds
only the newest frame; the others are in the rows before, of which as many more are kept.

Rows are numbered by a counter that only grows; row ``t`` lies in slot ``t % rows``. Transition ``t * E + e`` is what
environment ``e`` did in row ``t``. A number tells a transition from the one that overwrote it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.column import Column
from storages.core.ring.columns import SUCCESSORS_OF, Columns
from storages.core.ring.insertion import Slice
from storages.core.ring.layout import (
    FieldKey,
    Layout,
    LeafLayout,
    SampleError,
    becomes_single,
    converted,
    first_layout,
    fit,
    nest,
    text,
)
from storages.core.ring.live_rows import LiveRows
from storages.core.ring.snapshot import ENDED, ArrayKey, RowSpan
from storages.core.ring.validation import (
    check_finite,
    check_frame_stack,
    check_replacement_is_finite,
    depths_of,
)
from storages.transition import DONE, DONE2, FLAGS, OBS, RHS, SUCCESSORS, TRUNC2, Array, Sample


class Ring(LiveRows):
    """Columns of transitions for ``size`` steps of any number of environments.

    Args:
        size: live steps that fit.
        owner: the storage's name, for errors.
        num_envs: environments in a step; the first sample says so where None.
        allow_nonfinite: accept NaN and infinity.
        in_records: whether batches are made of transitions from anywhere, rather than of whole columns.
        stacked_frames: how many of the last frames an observation is a stack of, 0 where it is none; for a dict
            observation a number for all of its leaves, or one for some by name.
        computed: fields that are computed from the others, and that no sample may have.
    """

    def __init__(
        self,
        size: int,
        owner: str,
        num_envs: int | None = None,
        allow_nonfinite: bool = False,
        in_records: bool = True,
        stacked_frames: int | Mapping[str, int] = 0,
        computed: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(size, num_envs)
        self.owner = owner
        self.allow_nonfinite = allow_nonfinite
        self.layout: Layout = {}
        self._in_records = in_records
        self._stacked_frames = stacked_frames
        self._computed = computed
        self._columns = _no_columns()
        self._ended: NDArray[np.bool_] = np.empty((0,), np.bool_)
        self._set_rows()

    @property
    def nbytes(self) -> int:
        """Bytes that the columns, and what stands aside of them, take."""
        return self._columns.nbytes

    # In

    def init_columns(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a first sample and make room for ``size`` steps like it.

        Raises:
            SampleError: the sample is no sample, or the layout is fixed already and is another one.
        """
        if self.layout:
            fit(sample, self.layout, self.envs, self.owner)
        else:
            self._make_columns(*self._layout_of(sample))

    def insert(self, sample: Sample) -> None:
        """Store one step: ``E`` transitions.

        Raises:
            SampleError: the sample does not fit the first one, or holds NaN or infinity. Nothing was stored.
        """
        steps, check = self.steps, not self.allow_nonfinite
        # As a rule a step continues the one before it, and all that is to be done is done by one compiled call.
        if steps == self.first or not self._columns.inlet.store_usual(sample, steps, self._ended, check=check):
            self._insert_any(sample)
        self.steps = steps + 1
        if self._columns.computed:
            self._columns.drop_computed()

    def slice_of(self, arrays: Mapping[FieldKey, Array]) -> Slice | None:
        """Many steps (steps, E, ...) as :meth:`insert_slice` takes them; None where each has to be looked at."""
        steps, num_envs = len(arrays[(DONE,)]), self.envs
        if any(array.shape[:2] != (steps, num_envs) for array in arrays.values()):
            return None
        in_a_row = {path: array.reshape(steps * num_envs, *array.shape[2:]) for path, array in arrays.items()}
        try:
            fitting = fit(nest(in_a_row), self.layout, steps * num_envs, self.owner)
        except SampleError:
            # Which step does not fit is told when it is inserted.
            return None
        return self._columns.inlet.slice_of(fitting, steps)

    def insert_slice(self, together: Slice, first: int, most: int) -> int:
        """Store steps of a slice by one call.

        Args:
            together: the slice.
            first: position in it of the first to store.
            most: how many to store, at most.

        Returns:
            How many were stored; those before one that does not continue the step before it, or holds NaN or infinity.
        """
        stored = self._columns.inlet.store_slice(
            together, first, most, self.steps, self._ended, check=not self.allow_nonfinite
        )
        self.steps += stored
        if stored:
            self._columns.drop_computed()
        return stored

    def break_off(self) -> None:
        """Say that nothing continues the newest step, whatever comes next."""
        if self.steps > self.first and not self._ended.all():
            self._columns.put_aside((self.steps - 1) % self.rows, self.steps % self.rows, np.flatnonzero(~self._ended))
            self._ended = np.ones_like(self._ended)

    def forget_columns(self) -> None:
        """Let the next sample fix shapes and dtypes anew; nothing may be stored."""
        assert self.steps == self.first
        self.layout, self._columns = {}, _no_columns()

    def reset(self) -> None:
        """Forget every row, keep the memory. Rows start at slot 0 again, so that a rollout lies in one piece."""
        self.steps += -self.steps % self.rows
        self.first = self.steps
        self._columns.aside.clear()
        for _, column in self._columns.inserted():
            column.reset()
        self._columns.drop_computed()

    def drop_before(self, step: int) -> None:
        """Forget the rows before one, which may be the next to come."""
        gone = np.arange(max(self.first, self.steps - self.rows + 1), step) % self.rows
        self._columns.drop(gone)
        self.first = max(self.first, step)

    def overwrite(self, path: FieldKey, values: Array, start: int) -> None:
        """Replace a field's values in the live rows from the ``start``-th oldest on.

        What was computed from the field is dropped.

        Raises:
            SampleError: the field does not exist, is an observation or a flag (their neighbours depend on them), or the
                values do not fit, or hold NaN or infinity where that is refused. Nothing was replaced.
        """
        columns = self._columns
        if path not in columns or path[0] in FLAGS or path[0] in (OBS, RHS):
            replaceable = [text(p) for p in columns.paths() if p[0] not in FLAGS and p[0] not in (OBS, RHS)]
            raise SampleError(
                f"{self.owner}: {text(path)} cannot be replaced on its own, only {', '.join(replaceable)}"
            )
        column, layout = columns[path], columns[path].layout
        if becomes_single(path, values.dtype):
            values = converted(values, path, layout.dtype, self.owner)
        if values.shape[1:] != (self.envs, *layout.shape) or values.dtype != layout.dtype:
            shape = ", ".join(map(str, ("steps", self.envs, *layout.shape)))
            raise SampleError(
                f"{self.owner}: {text(path)} is {layout.dtype}({shape}), got {values.dtype}{values.shape}"
            )
        if not 0 <= start <= start + len(values) <= self.live_steps:
            raise SampleError(
                f"{self.owner}: steps {start} to {start + len(values)} of {text(path)} are not all among the "
                f"{self.live_steps} that are stored"
            )
        if not self.allow_nonfinite:
            check_replacement_is_finite(path, values, start, self.owner)
        rows = (self.oldest + start + np.arange(len(values))) % self.rows
        column.data[rows] = values
        if not columns.is_computed(path):
            columns.drop_computed()

    # Out

    def gather(
        self,
        transitions: NDArray[np.int64],
        keys: set[str] | None = None,
        last: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        """Copies of the fields of some live transitions, as numpy arrays (B, ...), dicts where they came as dicts.

        Args:
            transitions: (B,) int64, numbers of live transitions.
            keys: fields to fetch; all of them where None.
            last: (B,) int64, the transitions from which what followed is taken (OBS2, RHS2, DONE2, TRUNC2); the same
                ones where None.
        """
        first = np.ascontiguousarray(transitions)
        paths = None if keys is None else frozenset(path for path in self._known_paths() if path[0] in keys)
        return self._columns.gather(first, first if last is None else np.ascontiguousarray(last), paths)

    def gather_leaves(
        self, first: NDArray[np.int64], last: NDArray[np.int64], paths: frozenset[FieldKey]
    ) -> dict[str, Any]:
        """As :meth:`gather`, of some leaves; both arrays lie in one piece."""
        return self._columns.gather(first, last, paths)

    def gather_leaf(self, path: FieldKey, transitions: NDArray[np.int64]) -> Array:
        """Copies of one leaf of some live transitions, (B, ...); of an observation or of what followed it."""
        first = np.ascontiguousarray(transitions)
        value = self._columns.gather(first, first, frozenset((path,)))
        for name in path:
            value = value[name]
        leaf: Array = value  # type: ignore[assignment]
        return leaf

    def rows_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where transitions lie: of all the rows of a step after the other, (B,)."""
        return transitions % (self.rows * self.envs)

    def stretch(self, env: int, first: int, end: int) -> dict[FieldKey, Array]:
        """Copies of what an environment's rows [first, end) hold and, in one row more, of what they led to.

        Of stacked frames they are the newest ones; what has no successor is zero in the row more.
        """
        return self._columns.stretch(env, first, end)

    def column(self, key: str) -> Array:
        """A view (rows, E, ...) of a field's memory, row ``t`` in slot ``t % rows``; what is not live is anything.

        Of stacked frames it holds the newest ones.
        """
        return self._columns[(key,)].data

    @property
    def columns(self) -> Columns:
        """The memory; to be read, not written."""
        return self._columns

    def bytes_each(self, path: FieldKey) -> int:
        """What a transition takes of a leaf; of stacked frames, one frame."""
        return self._columns[path].width

    @property
    def final_numbers(self) -> NDArray[np.int32]:
        """(rows * E, 1): for each row the number of what stands aside for it, -1 where the next row continues it."""
        return self._columns.aside.numbers.reshape(-1, 1)

    def rollout(self, key: str) -> Array:
        """A view (live_steps, E, ...) of a field, in one piece if no more than ``size`` steps came since a reset."""
        start = self.first % self.rows
        return self._columns[(key,)].data[start : start + self.live_steps]

    def broken(self) -> NDArray[np.bool_]:
        """(live_steps, E): after this transition its environment did not go on in the next row (an end, or a cut)."""
        rows = np.arange(self.oldest, self.steps) % self.rows
        return self._columns.aside.numbers[rows] >= 0

    def broken_after(self, row: int) -> NDArray[np.bool_]:
        """(E,): as :meth:`broken`, of one row."""
        broken: NDArray[np.bool_] = self._columns.aside.numbers[row % self.rows] >= 0
        return broken

    def ended(self) -> NDArray[np.bool_]:
        """(live_steps, E): a sample said that this transition ended its episode."""
        rows = np.arange(self.oldest, self.steps) % self.rows
        ended: NDArray[np.bool_] = (self._columns[(DONE2,)].data[rows] | self._columns[(TRUNC2,)].data[rows])[..., 0]
        return ended

    def has_computed(self, key: str) -> bool:
        """Whether a field was computed from what is stored now."""
        return self._columns.is_computed((key,))

    def add_computed(self, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Make room for a field that is computed from the others; it stands until they change."""
        self._columns.add_computed((key,), LeafLayout(shape, dtype))

    # To and from disk

    def state_dict(self) -> dict[str, Any]:
        """Everything live, oldest row first, as tensors and plain data."""
        state: dict[str, Any] = {"size": self.size, "num_envs": self.num_envs, "steps": self.steps, "first": self.first}
        if not self.layout:
            return state | {"leaves": []}
        live = np.arange(self.oldest, self.steps) % self.rows
        numbers, aside = self._columns.aside.saved(live)
        return state | {
            "final_numbers": torch.from_numpy(numbers),
            "ended": torch.from_numpy(self._ended.copy()),
            "leaves": [
                {"path": list(path), "aside": torch.from_numpy(aside[text(path)]) if column.successor else None}
                | column.saved(self._rows_that_matter(column))
                for path, column in self._columns.inserted()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hold exactly what was saved; of the same size and number of environments.

        Raises:
            ValueError: it was saved with another size, number of environments or depth of stacked frames.
        """
        if self.num_envs is not None and state["num_envs"] not in (None, self.num_envs):
            raise ValueError(f"{self.owner}: made for {self.num_envs} environments, saved with {state['num_envs']}")
        if state["size"] != self.size:
            raise ValueError(f"{self.owner}: made with size {self.size}, saved with {state['size']}")
        if not state["leaves"]:
            self.layout, self._columns = {}, _no_columns()
            self.steps, self.first = state["steps"], state["first"]
            return
        layout = saved_layout(state)
        saved_depths = {tuple(leaf["path"]): leaf["depth"] for leaf in state["leaves"] if leaf["depth"] > 1}
        if saved_depths != (depths := depths_of(layout, self._stacked_frames, self.owner)):
            raise ValueError(f"{self.owner}: made for stacked frames {depths}, saved with {saved_depths}")
        self.steps, self.first = state["steps"], state["first"]
        self._make_columns(layout, state["num_envs"])
        live = np.arange(self.oldest, self.steps) % self.rows
        self._ended = state["ended"].numpy().copy()
        aside = {
            text(tuple(leaf["path"])): leaf["aside"].numpy() for leaf in state["leaves"] if leaf["aside"] is not None
        }
        self._columns.aside.append(live, state["final_numbers"].numpy(), aside)
        for leaf in state["leaves"]:
            column = self._columns[tuple(leaf["path"])]
            column.restore(self._rows_that_matter(column), leaf)

    # In parts

    @property
    def needed(self) -> int:
        """Number of the oldest row that matters: the oldest live one, or one that its stack reaches back to."""
        deepest = max((column.depth for column in self._columns.stacked.values()), default=1)
        return max(self.first, self.oldest - (deepest - 1))

    @property
    def stacked(self) -> dict[FieldKey, int]:
        """How many frames each leaf is a stack of, of those that are stacks."""
        return {path: column.depth for path, column in self._columns.stacked.items()}

    @property
    def bytes_of_a_step(self) -> int:
        """What a step takes of memory, but for what stands aside; known with the layout."""
        return self.envs * sum(column.width for _, column in self._columns.inserted())

    def snapshot(self, first: int) -> RowSpan:
        """The rows from ``first`` on, which must not be before :attr:`needed`.

        Views of the rows are part of it: it is good until ``rows`` steps after its first one were inserted. Where there
        is a row before, what it led to belongs to the part, because it may have turned out late that nothing
        continues it.
        """
        told = first - 1 if first > max(self.first, self.steps - self.rows + 1) else first
        arrays = self._columns.part(first, self.steps, told)
        arrays[ArrayKey(ENDED)] = (self._ended.copy(),)
        return RowSpan(first, self.steps, first == self.needed, self.first, arrays)

    def resize(self, size: int) -> None:
        """Make room for another number of steps; nothing may have been inserted, and no columns made."""
        assert not self.layout
        self.size = size
        self._set_rows()

    def prepare(self, layout: Layout, num_envs: int) -> None:
        """Make columns of a layout; nothing may be stored.

        Raises:
            SampleError: the observations are no stacks of so many frames.
        """
        assert self.steps == self.first
        self._make_columns(layout, num_envs)

    def append_span(self, part: RowSpan) -> None:
        """Take up a part behind the newest row, or instead of all rows if it begins anew.

        Args:
            part: of a ring of the same size and layout.
        """
        if part.begins or self.steps == self.first:
            self._columns.aside.clear()
            for _, column in self._columns.inserted():
                column.reset()
        else:
            assert part.first == self.steps
        self._columns.put(part)
        self._ended = part.array(ENDED).copy()
        self.first, self.steps = part.since, part.steps

    # Inside

    def _insert_any(self, sample: Sample) -> None:
        layout, num_envs = (self.layout, self.envs) if self.layout else self._layout_of(sample)
        arrays = fit(sample, layout, num_envs, self.owner)
        if not self.allow_nonfinite:
            check_finite(arrays, self.steps, self.owner)
        if not self.layout:
            self._make_columns(layout, num_envs)
        check_frame_stack(arrays, self._columns.stacked, self.steps, self.owner)
        starts = np.ones((num_envs,), np.bool_)
        if self.steps > self.first:
            starts = self._ended | self._keep_what_is_not_continued(arrays)
        self._columns.inlet.store(arrays, self.steps, self._ended, starts)

    def _set_rows(self) -> None:
        depths = self._stacked_frames
        deepest = max(depths.values(), default=0) if isinstance(depths, Mapping) else depths
        # What the newest step led to takes one; the oldest live stacks reach back by more.
        self.rows = self.size + max(1, deepest)

    def _rows_that_matter(self, column: Column) -> NDArray[np.int64]:
        """Where the live rows lie, and what stacks reach back to, and what the newest step led to."""
        begin = max(self.first, self.oldest - (column.depth - 1))
        return np.arange(begin, self.steps + (column.successor is not None)) % self.rows

    def _known_paths(self) -> list[FieldKey]:
        paths = self._columns.paths()
        return paths + [path for path in self.layout if path[0] in SUCCESSORS]

    def _layout_of(self, first_sample: Sample) -> tuple[Layout, int]:
        layout, num_envs = first_layout(first_sample, self.owner, self._computed)
        if self.num_envs is not None and self.num_envs != num_envs:
            raise SampleError(f"{self.owner}: made for {self.num_envs} environments, the sample holds {num_envs}")
        return layout, num_envs

    def _make_columns(self, layout: Layout, num_envs: int) -> None:
        stacked = frozenset(depths_of(layout, self._stacked_frames, self.owner))
        self.layout, self.num_envs, self.envs = layout, num_envs, num_envs
        self._columns = Columns(layout, self.rows, num_envs, self._in_records, stacked)
        self._ended = np.zeros((num_envs,), np.bool_)

    def _keep_what_is_not_continued(self, arrays: Mapping[FieldKey, Array]) -> NDArray[np.bool_]:
        """What the newest step led to is about to be overwritten by what this one begins with: keep it if they differ.

        They do when a stream of experience was interrupted without an end: a run resumed with new episodes, slices of
        several workers one after the other. Returns (E,), where it was so.
        """
        slot = self.steps % self.rows
        differs: NDArray[np.bool_] = arrays[(DONE,)][:, 0] != self._ended
        for path, column in self._columns.chained():
            column_differs = column.differs(slot, arrays[path])
            if column_differs is not None:
                differs |= column_differs
        differs &= ~self._ended
        if differs.any():
            self._columns.put_aside((self.steps - 1) % self.rows, slot, np.flatnonzero(differs))
        return differs


def saved_layout(state: Mapping[str, Any]) -> Layout:
    """The layout of the ring that a state was saved of; empty where it had none yet."""
    layout: Layout = {}
    for leaf in state["leaves"]:
        rows, depth = leaf["rows"].numpy(), leaf["depth"]
        layout[tuple(leaf["path"])] = LeafLayout(((depth,) if depth > 1 else ()) + rows.shape[2:], rows.dtype)
    return layout | {(SUCCESSORS_OF[p[0]], *p[1:]): leaf for p, leaf in layout.items() if p[0] in SUCCESSORS_OF}


def _no_columns() -> Columns:
    return Columns({}, 0, 0, in_records=True)
