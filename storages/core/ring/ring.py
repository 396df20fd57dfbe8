"""The ring buffer: columns of transitions, with each observation stored once.

A column is an array ``(rows, E, ...)`` of which ``size`` rows are live at a time. The next observation of a step
(OBS2, RHS2) is the observation of the following step (OBS, RHS), so only the latter is stored and the former is read
from the next row. That needs one row more than ``size``, for the newest step's next observation, and a side table for
the final observations of episodes, because the row after an end begins the next episode. Of a stack of frames, a row
holds only the newest frame; the older ones are read from the rows before, of which ``depth - 1`` more are kept.

Rows are numbered by a counter that only increases; row ``t`` lies in slot ``t % rows``. Transition ``t * E + e`` is
that of environment ``e`` in row ``t``. The number distinguishes a transition from the one that overwrites it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.column import Column
from storages.core.ring.columns import Columns, saved_layout
from storages.core.ring.insertion import Slice
from storages.core.ring.layout import (
    FieldKey,
    Layout,
    SampleError,
    first_layout,
    fit,
    nest,
    text,
)
from storages.core.ring.memory_share import MemoryShare, power_of_two_from, share_of
from storages.core.ring.sharing import entries_of
from storages.core.ring.snapshot import ENDED, ArrayKey, RowSpan
from storages.core.ring.validation import (
    check_finite,
    check_frame_stack,
    check_replacement_is_finite,
    checked_replacement,
    depths_of,
)
from storages.transition import DONE, DONE2, SKIPPED, TRUNC2, Array, Sample

_FIRST_SIZE = 64
"""Initial capacity, in steps, of a ring that grows."""


class Ring:
    """Columns of transitions for ``size`` steps of any number of environments.

    Args:
        size: capacity in steps; None for a ring that grows: its owner calls :meth:`resize` when it is full.
        owner: the storage's name, for errors.
        num_envs: environments in a step; that of the first sample where None.
        allow_nonfinite: accept NaN and infinity.
        in_records: interleave the small fields of a transition in a record, for batches of random transitions.
        stacked_frames: number of frames that an observation stacks, 0 for no stack; for a dict observation one number
            for all of its leaves, or numbers for some by name.
        computed: fields that are computed from the others; samples must not have them.
    """

    def __init__(
        self,
        size: int | None,
        owner: str,
        num_envs: int | None = None,
        allow_nonfinite: bool = False,
        in_records: bool = True,
        stacked_frames: int | Mapping[str, int] = 0,
        computed: frozenset[str] = frozenset(),
    ) -> None:
        self.size, self.num_envs = _FIRST_SIZE if size is None else size, num_envs
        self.grows = size is None
        """Whether the owner resizes the ring before a step would be overwritten."""
        self.max_bytes: int | None = None
        """Memory bound from which ``size`` follows once the layout is known; None for a given size."""
        self._bytes_beside, self._bytes_apart, self._least_size = 0, 0, 1
        self.bytes_of_tables = 0
        """Most bytes of the side tables, where ``max_bytes`` is given and the layout known."""
        self._share: MemoryShare | None = None
        self._shrunk_from: int | None = None
        self.envs = num_envs or 0
        """Environments in a step, 0 until they are known."""
        self.rows = self.size + 1
        """Rows of the columns, live or not."""
        self.first = 0
        """Number of the first row after the last reset or drop; rows before it are gone."""
        self.steps = 0
        """Number of the next row."""
        self.owner = owner
        self.allow_nonfinite = allow_nonfinite
        self.fields: frozenset[str] | None = None
        """Fields of samples that are stored; all where None."""
        self.layout: Layout = {}
        """Shapes and dtypes of a transition's leaves; empty until the first sample."""
        self.layout_from: str | None = None
        """Where the layout comes from, if not from a sample of this process."""
        self._in_records = in_records
        self._stacked_frames = stacked_frames
        self._computed = computed
        self.columns = _no_columns()
        """The columns, read-only; replaced when the layout becomes known."""
        self._set_rows()

    def limit_memory(self, max_bytes: int, bytes_beside: int, bytes_apart: int, least_size: int) -> None:
        """Bound the capacity by memory; it is computed when the layout is known.

        A part is left for the side tables, of final observations and of padding frames, which grow as episodes end; the
        owner calls :meth:`shrink` where they would need more.

        Args:
            max_bytes: memory bound of the steps.
            bytes_beside: bytes that observers keep for each transition, which count towards the bound.
            bytes_apart: bytes that they keep however many transitions there are.
            least_size: steps that must fit.
        """
        self._most, self.grows = sys.maxsize if self.grows else self.size, False
        self.max_bytes, self._bytes_beside, self._least_size = max_bytes, bytes_beside, least_size
        self._bytes_apart = bytes_apart

    @property
    def full_size(self) -> int:
        """Capacity in steps before :meth:`shrink`."""
        return self.size if self._shrunk_from is None else self._shrunk_from

    # Which rows are live

    @property
    def oldest(self) -> int:
        """Number of the oldest live row."""
        first, oldest_that_fits = self.first, self.steps - self.size
        # Read several times per batch; a call of max() would take longer than the rest.
        return first if first > oldest_that_fits else oldest_that_fits

    @property
    def live_steps(self) -> int:
        """Number of live rows."""
        return self.steps - self.oldest

    @property
    def live_transitions(self) -> int:
        """Number of live transitions."""
        return self.live_steps * self.envs

    @property
    def start(self) -> int:
        """Number of the oldest live transition."""
        return self.oldest * self.envs

    @property
    def end(self) -> int:
        """Number of the next transition."""
        return self.steps * self.envs

    # Insertion

    def init_columns(self, sample: Sample) -> None:
        """Fix the layout by a first sample, and allocate the columns for ``size`` steps.

        Raises:
            SampleError: the sample is invalid, or does not fit a layout that is fixed already.
        """
        sample = self._stored_of(sample)
        if self.layout:
            self._fit(sample, self.layout, self.envs)
        else:
            self._make_columns(*self._layout_of(sample))

    def checked(self, sample: Sample, envs: Sequence[int] | None = None) -> dict[FieldKey, Array]:
        """Return the arrays of a sample, checked and in the stored dtypes; the first sample fixes the layout.

        Args:
            sample: a step (E, ...), or the transitions (N, ...) of some environments.
            envs: (N,), indices of these; None for a step.

        Raises:
            SampleError: the arrays do not fit the layout, or hold NaN or infinity.
        """
        sample, layout, num_envs = self._stored_of(sample), self.layout, self.envs
        if not layout and envs is None:
            layout, num_envs = self._layout_of(sample)
        elif not layout:
            layout, _ = first_layout(sample, self.owner, self._computed)
        arrays = self._fit(sample, layout, num_envs if envs is None else len(envs))
        if not self.allow_nonfinite:
            check_finite(arrays, self.steps, self.owner, envs)
        if not self.layout:
            self._make_columns(layout, num_envs)
        check_frame_stack(arrays, self.columns.stacked, self.steps, self.owner, envs)
        return arrays

    def insert(self, sample: Sample) -> None:
        """Store one step: ``E`` transitions.

        Raises:
            SampleError: the sample does not fit the first one, or holds NaN or infinity. Nothing was stored.
        """
        steps, columns = self.steps, self.columns
        # Fast path: a step that continues the previous one is stored by one compiled call.
        if steps == self.first or not columns.writer.append(sample, steps, not self.allow_nonfinite):
            self._insert_slowly(sample)
            columns = self.columns
        self.steps = steps + 1
        if columns.computed:
            columns.drop_computed()

    def slice_of(self, arrays: Mapping[FieldKey, Array]) -> Slice | None:
        """Return steps (steps, E, ...) as a slice for :meth:`insert_slice`; None where each must be inserted alone."""
        steps, num_envs = len(arrays[(DONE,)]), self.envs
        if any(array.shape[:2] != (steps, num_envs) for array in arrays.values()):
            return None
        in_a_row = {path: array.reshape(steps * num_envs, *array.shape[2:]) for path, array in arrays.items()}
        try:
            fitting = fit(nest(in_a_row), self.layout, steps * num_envs, self.owner)
        except SampleError:
            # The insertion of the offending step raises the error.
            return None
        return self.columns.writer.slice_of(fitting, steps)

    def insert_slice(self, together: Slice, first: int, most: int) -> int:
        """Store steps of a slice by one compiled call.

        Args:
            together: the slice.
            first: position in it of the first step to store.
            most: maximum number of steps to store.

        Returns:
            Number of stored steps, up to the first that does not continue the step before it, or is not finite.
        """
        stored = self.columns.writer.append_slice(together, first, most, self.steps, not self.allow_nonfinite)
        self.steps += stored
        if stored:
            self.columns.drop_computed()
        return stored

    def interrupt(self, envs: NDArray[np.int64] | None = None, truncate: bool = False) -> NDArray[np.int64]:
        """Interrupt running episodes after the newest step, so that the next step does not continue them.

        Args:
            envs: their environments, each once; all where None.
            truncate: set TRUNC2 of their newest transitions, as at a time limit.

        Returns:
            The environments whose episodes were running.
        """
        columns, newest = self.columns, (self.steps - 1) % self.rows
        running = np.flatnonzero(~columns.ended)
        if envs is not None:
            running = np.intersect1d(running, envs)
        if self.steps == self.first or not len(running):
            return running[:0]
        columns.store_finals(newest, self.steps % self.rows, running)
        columns.ended[running] = True
        if truncate:
            columns[(TRUNC2,)].data[newest, running] = True
            columns.drop_computed()
        return running

    def forget_columns(self) -> None:
        """Drop the layout, so that the next sample fixes it; the ring must be empty."""
        assert self.steps == self.first
        self.layout, self.layout_from, self.columns = {}, None, _no_columns()

    def reset(self) -> None:
        """Drop all rows, keep the memory; rows start at slot 0 again, so that a rollout is contiguous."""
        self.steps += -self.steps % self.rows
        self.first = self.steps
        self.columns.finals.clear()
        for _, column in self.columns.inserted.items():
            column.reset()
        self.columns.drop_computed()

    def drop_before(self, step: int) -> None:
        """Drop the rows before a step, which may be the next one to be inserted."""
        gone = np.arange(max(self.first, self.steps - self.rows + 1), step) % self.rows
        self.columns.drop(gone)
        self.first = max(self.first, step)

    def overwrite(self, path: FieldKey, values: Array, start: int) -> None:
        """Overwrite a field in the live rows from the ``start``-th oldest on.

        Computed fields are dropped.

        Raises:
            SampleError: the field does not exist, is an observation or a flag (on which neighbouring rows depend), or
                the values do not fit, or are not finite where that is refused. Nothing was overwritten.
        """
        columns = self.columns
        values = checked_replacement(path, values, columns, self.owner)
        if not 0 <= start <= start + len(values) <= self.live_steps:
            raise SampleError(
                f"{self.owner}: steps {start} to {start + len(values)} of {text(path)} are out of range, with "
                f"{self.live_steps} steps stored"
            )
        if not self.allow_nonfinite:
            check_replacement_is_finite(path, values, start, self.owner)
        rows = (self.oldest + start + np.arange(len(values))) % self.rows
        columns[path].data[rows] = values
        if path not in columns.computed:
            columns.drop_computed()

    # Reading

    def gather(
        self,
        transitions: NDArray[np.int64],
        keys: Set[str] | None = None,
        last: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        """Copy fields of live transitions as numpy arrays (B, ...), or dicts of arrays for dict fields.

        Args:
            transitions: (B,) int64, numbers of live transitions.
            keys: names of fields; all where None.
            last: (B,) int64, the transitions from which OBS2, RHS2, DONE2 and TRUNC2 are taken, as of n-step windows;
                ``transitions`` where None.
        """
        return self.columns.gather(transitions, None if keys is None else frozenset(keys), last)

    def rollout(self, key: str) -> Array:
        """Return a view (live_steps, E, ...) of a field; at most ``size`` steps may be inserted since a reset."""
        start = self.first % self.rows
        return self.columns.data(key)[start : start + self.live_steps]

    def broken(self) -> NDArray[np.bool_]:
        """Return (live_steps, E), where the next row does not continue the episode (an end, or an interruption)."""
        rows = np.arange(self.oldest, self.steps) % self.rows
        return self.columns.finals.numbers[rows] >= 0

    def interrupted_after(self, row: int) -> NDArray[np.bool_]:
        """Return (E,), as :meth:`broken`, for one row."""
        broken: NDArray[np.bool_] = self.columns.finals.numbers[row % self.rows] >= 0
        return broken

    def ended(self) -> NDArray[np.bool_]:
        """Return (live_steps, E), where a transition terminated or truncated its episode."""
        rows = np.arange(self.oldest, self.steps) % self.rows
        ended: NDArray[np.bool_] = (self.columns[(DONE2,)].data[rows] | self.columns[(TRUNC2,)].data[rows])[..., 0]
        return ended

    def skipped(self) -> NDArray[np.bool_]:
        """Return (live_steps, E), where an environment made no transition."""
        if (SKIPPED,) not in self.layout:
            return np.zeros((self.live_steps, self.envs), np.bool_)
        rows = np.arange(self.oldest, self.steps) % self.rows
        skipped: NDArray[np.bool_] = self.columns[(SKIPPED,)].data[rows][..., 0]
        return skipped

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return all live rows, oldest first, as tensors and plain data; copies, but within :func:`sharing_memory`."""
        state: dict[str, Any] = {"size": self.size, "num_envs": self.num_envs, "steps": self.steps, "first": self.first}
        state |= {"full_size": self.full_size} if self._shrunk_from is not None else {}
        if not self.layout:
            return state | {"leaves": []}
        live = np.arange(self.oldest, self.steps) % self.rows
        numbers, finals = self.columns.finals.saved(live, entries_of)
        shared = self.columns.shared(np.arange(self.oldest, self.steps + 1) % self.rows)
        return state | {
            "final_numbers": torch.from_numpy(numbers),
            "ended": torch.from_numpy(self.columns.ended.copy()),
            "leaves": [
                {"path": list(path), "finals": torch.from_numpy(finals[text(path)]) if column.successor else None}
                | column.saved(rows := self._rows_that_matter(column), shared.of(column, rows))
                for path, column in self.columns.inserted.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict` of a ring of the same size and number of environments.

        Raises:
            ValueError: it was saved with another size, number of environments or depth of stacked frames.
        """
        if self.num_envs is not None and state["num_envs"] not in (None, self.num_envs):
            raise ValueError(f"{self.owner}: made for {self.num_envs} environments, saved with {state['num_envs']}")
        layout = saved_layout(state)
        full_size, size = state.get("full_size", state["size"]), state["size"]
        if not 0 < size <= full_size or (size < full_size and self.max_bytes is None):
            raise ValueError(f"{self.owner}: saved with size {size} of {full_size}, without max_bytes")
        fitting = full_size if self.grows else self._size_for(layout, state["num_envs"], full_size)
        if full_size != fitting and (layout or self.max_bytes is None):
            raise ValueError(f"{self.owner}: made with size {fitting}, saved with {full_size}")
        if not layout:
            self.layout, self.columns = {}, _no_columns()
            self.steps, self.first = state["steps"], state["first"]
            return
        saved_depths = {tuple(leaf["path"]): leaf["depth"] for leaf in state["leaves"] if leaf["depth"] > 1}
        if saved_depths != (depths := depths_of(layout, self._stacked_frames, self.owner)):
            raise ValueError(f"{self.owner}: made for stacked frames {depths}, saved with {saved_depths}")
        self.steps, self.first = state["steps"], state["first"]
        self.layout_from = "the state that was loaded"
        self._make_columns(layout, state["num_envs"], full_size, size)
        live = np.arange(self.oldest, self.steps) % self.rows
        self.columns.ended[...] = state["ended"].numpy()
        finals = {
            text(tuple(leaf["path"])): leaf["finals"].numpy() for leaf in state["leaves"] if leaf["finals"] is not None
        }
        self.columns.finals.extend(live, state["final_numbers"].numpy(), finals)
        for leaf in state["leaves"]:
            column = self.columns[tuple(leaf["path"])]
            column.restore(self._rows_that_matter(column), leaf)

    # Spans of rows

    @property
    def needed(self) -> int:
        """Number of the oldest row needed: the oldest live one, or that of the oldest frame of its stack."""
        deepest = max((column.depth for column in self.columns.stacked.values()), default=1)
        return max(self.first, self.oldest - (deepest - 1))

    @property
    def stacked(self) -> dict[FieldKey, int]:
        """Number of frames of each leaf that is a stack of frames."""
        return {path: column.depth for path, column in self.columns.stacked.items()}

    @property
    def bytes_of_a_step(self) -> int:
        """Bytes of a step in the columns; known with the layout."""
        return self.envs * sum(column.width for _, column in self.columns.inserted.items())

    def snapshot(self, first: int) -> RowSpan:
        """Return the rows from ``first`` on, which must not be before :attr:`needed`.

        The span holds views, which are valid until step ``first + rows - 1`` is inserted. It includes TRUNC2 and the
        final observation, if any, of the row before, because :meth:`interrupt` may change these late.
        """
        from_row = first - 1 if first > max(self.first, self.steps - self.rows + 1) else first
        arrays = self.columns.snapshot(first, self.steps, from_row)
        arrays[ArrayKey(ENDED)] = (self.columns.ended.copy(),)
        return RowSpan(first, self.steps, first == self.needed, self.first, arrays)

    def resize(self, size: int) -> None:
        """Change the capacity to ``size`` steps, no fewer than are stored; live rows are copied.

        Raises:
            MemoryError: there is not enough memory; nothing was changed.
        """
        assert size >= self.live_steps
        if self.layout:
            stored, before, rows = self.snapshot(self.needed), self.columns, self._rows_of(size)
            self.columns = Columns(self.layout, rows, self.envs, self._in_records, frozenset(self.stacked))
            self.columns.append_span(stored)
            self.columns.ended[...] = before.ended
            self.columns.writer.take_over(before.writer)
        self.size = size
        self._set_rows()

    def shrink(self, size: int) -> None:
        """Reduce the capacity to ``size`` steps, and drop older ones; what they took is left for the side tables.

        Raises:
            MemoryError: there is not enough memory to copy the rows; only the older ones were dropped.
        """
        full_size = self.full_size
        if self.steps - size > self.first:
            self.drop_before(self.steps - size)
        if self.rows > self._rows_of(size):
            self.resize(size)
        else:
            # A ring with no more memory than it needs.
            self.size = size
        self._shrunk_from = full_size
        if self._share is not None and self.max_bytes is not None:
            self.bytes_of_tables = self._share.bytes_of_tables(size, self.max_bytes)

    def size_for_tables(self, entries: Callable[[int], list[int]], *, smaller: bool) -> int:
        """Return the capacity, at most the present one, at which the side tables fit into the memory bound.

        Args:
            entries: returns how many entries of each table are needed for a number of steps.
            smaller: return a smaller one than the present one, if possible.
        """
        assert self._share is not None
        assert self.max_bytes is not None
        widths = [table.bytes_of_an_entry for table in self.columns.tables]
        # In steps, so that it is seldom shrunk again.
        size = max(self._least_size, self.size * 15 // 16) if smaller else self.size
        while size > self._least_size:
            needed = sum(width * power_of_two_from(count) for width, count in zip(widths, entries(size), strict=True))
            if needed <= self._share.bytes_of_tables(size, self.max_bytes):
                break
            size = max(self._least_size, size * 15 // 16)
        return size

    def prepare(self, layout: Layout, num_envs: int, size: int | None = None) -> None:
        """Allocate the columns of a layout; the ring must be empty.

        Args:
            layout: shapes and dtypes of a transition's leaves.
            num_envs: environments in a step.
            size: new capacity in steps; unchanged where None. One that does not fit ``max_bytes`` is not taken.

        Raises:
            SampleError: the observations are not stacks of ``stacked_frames`` frames.
        """
        assert self.steps == self.first
        if size is not None:
            self.size = size
            self._set_rows()
        self._make_columns(layout, num_envs, size)

    def append_span(self, part: RowSpan) -> None:
        """Append the rows of a span after the newest row, or replace all rows if it is marked as a beginning.

        Args:
            part: of a ring of the same size and layout.
        """
        if part.begins or self.steps == self.first:
            self.columns.finals.clear()
            for _, column in self.columns.inserted.items():
                column.reset()
        else:
            assert part.first == self.steps
        self.columns.append_span(part)
        self.columns.ended[...] = part.array(ENDED)
        self.first, self.steps = part.since, part.steps

    # Internals

    def _insert_slowly(self, sample: Sample) -> None:
        arrays = self.checked(sample)
        starts = np.ones((self.envs,), np.bool_)
        if self.steps > self.first:
            starts = self.columns.ended | self._keep_broken_streams(arrays)
        self.columns.writer.store(arrays, self.steps, starts)

    def _set_rows(self) -> None:
        self.rows = self._rows_of(self.size)

    def _rows_of(self, size: int) -> int:
        depths = self._stacked_frames
        deepest = max(depths.values(), default=0) if isinstance(depths, Mapping) else depths
        # One row for the newest next observation; more for the older frames of the oldest stack.
        return size + max(1, deepest)

    def _size_for(self, layout: Layout, num_envs: int, known: int | None = None) -> int:
        """Return how many steps of a layout fit.

        Args:
            layout: the layout.
            num_envs: environments in a step.
            known: the capacity of a ring to be restored, which is taken if it fits; earlier versions left nothing for
                side tables.
        """
        if self.max_bytes is None or not layout:
            return self.size
        stacked = frozenset(depths_of(layout, self._stacked_frames, self.owner))
        columns = Columns(layout, 1, num_envs, self._in_records, stacked)
        share = share_of(
            self.max_bytes,
            columns=(columns.nbytes, Columns(layout, 2, num_envs, self._in_records, stacked).nbytes),
            tables=[table.bytes_of_an_entry for table in columns.tables],
            rows_beside=self._rows_of(0),
            bytes_beside=self._bytes_beside * num_envs,
            bytes_apart=self._bytes_apart,
            num_envs=num_envs,
            least=self._least_size,
        )
        if share.size < self._least_size:
            raise SampleError(
                f"{self.owner}: max_bytes must be at least {share.least_bytes:,} to hold {self._least_size} steps of "
                f"{num_envs} environments, got {self.max_bytes:,}"
            )
        size = min(self._most, share.size)
        if known is not None and size <= known <= min(self._most, share.size_without_tables):
            size = known
        self._share, self.bytes_of_tables = share, share.bytes_of_tables(size, self.max_bytes)
        return size

    def _rows_that_matter(self, column: Column) -> NDArray[np.int64]:
        """Return the slots of live rows, of the older frames of stacks, and of the newest next observation."""
        begin = max(self.first, self.oldest - (column.depth - 1))
        return np.arange(begin, self.steps + (column.successor is not None)) % self.rows

    def _stored_of(self, sample: Sample) -> Sample:
        if self.fields is None:
            return sample
        return {key: value for key, value in sample.items() if key in self.fields}

    def _fit(self, sample: Sample, layout: Layout, num_envs: int) -> dict[FieldKey, Array]:
        try:
            return fit(sample, layout, num_envs, self.owner)
        except SampleError as error:
            if self.layout_from is None:
                raise
            raise SampleError(
                f"{error}. The first sample was that of {self.layout_from}, which this storage goes on with; for other "
                f"spaces or another number of environments, begin an empty storage"
            ) from None

    def _layout_of(self, first_sample: Sample) -> tuple[Layout, int]:
        layout, num_envs = first_layout(first_sample, self.owner, self._computed)
        if self.num_envs is not None and self.num_envs != num_envs:
            raise SampleError(f"{self.owner}: made for {self.num_envs} environments, the sample holds {num_envs}")
        return layout, num_envs

    def _make_columns(
        self, layout: Layout, num_envs: int, known: int | None = None, shrunk_to: int | None = None
    ) -> None:
        stacked = frozenset(depths_of(layout, self._stacked_frames, self.owner))
        self.size, self._shrunk_from = known if self.grows and known else self._size_for(layout, num_envs, known), None
        if shrunk_to is not None and shrunk_to < self.size:
            self._shrunk_from, self.size = self.size, shrunk_to
            if self._share is not None and self.max_bytes is not None:
                self.bytes_of_tables = self._share.bytes_of_tables(shrunk_to, self.max_bytes)
        self._set_rows()
        self.layout, self.num_envs, self.envs = layout, num_envs, num_envs
        self.columns = Columns(layout, self.rows, num_envs, self._in_records, stacked)

    def _keep_broken_streams(self, arrays: Mapping[FieldKey, Array]) -> NDArray[np.bool_]:
        """Save next observations of the newest step that the observations of an inserted step differ from.

        They differ where experience was interrupted without an end of the episode: by a run resumed with new episodes,
        or between slices of different workers. Returns (E,), where they differ.
        """
        slot = self.steps % self.rows
        differs: NDArray[np.bool_] = arrays[(DONE,)][:, 0] != self.columns.ended
        for path, column in self.columns.chained():
            column_differs = column.differs(slot, arrays[path])
            if column_differs is not None:
                differs |= column_differs
        differs &= ~self.columns.ended
        if differs.any():
            self.columns.store_finals((self.steps - 1) % self.rows, slot, np.flatnonzero(differs))
        return differs


def _no_columns() -> Columns:
    return Columns({}, 0, 0, in_records=True)
