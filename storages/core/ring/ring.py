"""The ring buffer: columns of transitions, with each observation stored once.

A column is an array ``(rows, E, ...)`` of which ``size`` rows are live at a time. The next observation of a step
(OBS2, RHS2) is the observation of the following step (OBS, RHS), so only the latter is stored and the former is read
from the next row. That needs one row more than ``size``, for the newest step's next observation, and a side table for
the final observations of episodes, because the row after an end begins the next episode. Of a stack of frames, a row
holds only the newest frame; the older ones are read from the rows before, of which ``depth - 1`` more are kept.

Rows are numbered by a counter that only increases; row ``t`` lies in slot ``t % rows``. Transition ``t * E + e`` is
that of environment ``e`` in row ``t``. The number distinguishes a transition from the one that overwrites it.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.columns import Columns
from storages.core.ring.insertion import StepBlock
from storages.core.ring.layout import FieldKey, Layout, SampleError, first_layout, fit, nest, stored_fields, text
from storages.core.ring.memory_limit import MemoryLimit
from storages.core.ring.snapshot import ENDED, ArrayKey, RowSpan
from storages.core.ring.validation import (
    check_finite,
    check_frame_stack,
    check_replacement_is_finite,
    checked_replacement,
    depths_of,
)
from storages.transition import DONE, DONE2, RHS, SKIPPED, TRUNC2, Array, Sample

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
        self.full_size = self.size
        """Capacity in steps before :meth:`shrink`."""
        self.limit: MemoryLimit | None = None
        """Bound on memory from which ``size`` follows once the layout is known; None for a given size."""
        self.envs = num_envs or 0
        """Environments in a step, 0 until they are known."""
        deepest = max(stacked_frames.values(), default=0) if isinstance(stacked_frames, Mapping) else stacked_frames
        # One row for the newest next observation; more for the older frames of the oldest stack.
        self._rows_beside = max(1, deepest)
        self.rows = self.size + self._rows_beside
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
        self.stacked_frames = stacked_frames
        self.stacked: dict[FieldKey, int] = {}
        """Number of frames of each leaf that is a stack of frames; known with the layout."""
        self._computed = computed
        self.columns = _no_columns()
        """The columns, read-only; replaced when the layout becomes known."""

    # Which rows are live

    @property
    def oldest(self) -> int:
        """Number of the oldest live row."""
        first, oldest_that_fits = self.first, self.steps - self.size
        # Read several times per batch: no call of max().
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
        sample = stored_fields(sample, self.fields)
        if self.layout:
            fit(sample, self.layout, self.envs, self.owner, self.layout_from)
        else:
            self.allocate(*first_layout(sample, self.owner, self._computed, self.num_envs))

    def checked(self, sample: Sample, envs: Sequence[int] | None = None) -> dict[FieldKey, Array]:
        """Return the arrays of a sample, checked and in the stored dtypes; the first sample fixes the layout.

        Args:
            sample: a step (E, ...), or the transitions (N, ...) of some environments.
            envs: (N,), indices of these; None for a step.

        Raises:
            SampleError: the arrays do not fit the layout, or hold NaN or infinity.
        """
        sample, layout, num_envs = stored_fields(sample, self.fields), self.layout, self.envs
        if not layout and envs is None:
            layout, num_envs = first_layout(sample, self.owner, self._computed, self.num_envs)
        elif not layout:
            layout, _ = first_layout(sample, self.owner, self._computed)
        arrays = fit(sample, layout, num_envs if envs is None else len(envs), self.owner, self.layout_from)
        if not self.allow_nonfinite:
            check_finite(arrays, self.steps, self.owner, envs)
        if not self.layout:
            self.allocate(layout, num_envs)
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
            arrays = self.checked(sample)
            columns = self.columns
            starts = np.ones((self.envs,), np.bool_)
            if steps > self.first:
                starts = columns.ended | columns.store_interrupted(arrays, steps)
            columns.writer.store(arrays, steps, starts)
        self.steps = steps + 1
        if columns.computed:
            columns.drop_computed()

    def block_of(self, arrays: Mapping[FieldKey, Array]) -> StepBlock | None:
        """Return steps (steps, E, ...) as a slice for :meth:`insert_block`; None where each must be inserted alone."""
        steps, num_envs = len(arrays[(DONE,)]), self.envs
        if any(array.shape[:2] != (steps, num_envs) for array in arrays.values()):
            return None
        concatenated = {path: array.reshape(steps * num_envs, *array.shape[2:]) for path, array in arrays.items()}
        try:
            fitting = fit(nest(concatenated), self.layout, steps * num_envs, self.owner)
        except SampleError:
            # The insertion of the offending step raises the error.
            return None
        return self.columns.writer.block_of(fitting, steps)

    def insert_block(self, steps: StepBlock, first: int, most: int) -> int:
        """Store steps of a slice by one compiled call.

        Args:
            steps: the slice.
            first: position in it of the first step to store.
            most: maximum number of steps to store.

        Returns:
            Number of stored steps, up to the first that does not continue the step before it, or is not finite.
        """
        stored = self.columns.writer.append_block(steps, first, most, self.steps, not self.allow_nonfinite)
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
        self.layout, self.layout_from, self.stacked, self.columns = {}, None, {}, _no_columns()

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

    def replace_states(self, transitions: NDArray[np.int64], states: Array) -> None:
        """Replace the recurrent states RHS before live transitions.

        Args:
            transitions: (N,) int64, their numbers; of one that is given twice, the last state counts.
            states: (N, hidden), converted to the stored dtype.
        """
        self.columns[(RHS,)].data[transitions // self.envs % self.rows, transitions % self.envs] = states

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

    def broken(self, first: int | None = None, end: int | None = None) -> NDArray[np.bool_]:
        """Return (rows, E), where the next row does not continue the episode (an end, or an interruption).

        Args:
            first: number of the first row; the oldest live one where None.
            end: number after the last row; that of the next row where None.
        """
        rows = np.arange(self.oldest if first is None else first, self.steps if end is None else end) % self.rows
        return self.columns.finals.numbers[rows] >= 0

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

    # Spans of rows

    @property
    def needed(self) -> int:
        """Number of the oldest row needed: the oldest live one, or that of the oldest frame of its stack."""
        deepest = max((column.depth for column in self.columns.stacked.values()), default=1)
        return max(self.first, self.oldest - (deepest - 1))

    def snapshot(self, first: int) -> RowSpan:
        """Return the rows from ``first`` on, which must not be before :attr:`needed`.

        The span holds views, which are valid until step ``first + rows - 1`` is inserted. It includes TRUNC2 and the
        final observation, if any, of the row before, because :meth:`interrupt` may change these late.
        """
        from_row = first - 1 if first > max(self.first, self.steps - self.rows + 1) else first
        arrays = self.columns.snapshot(first, self.steps, from_row)
        arrays[ArrayKey(ENDED)] = (self.columns.ended.copy(),)
        return RowSpan(first, self.steps, first == self.needed, self.first, arrays)

    def resize(self, size: int, full_size: int | None = None) -> None:
        """Change the capacity to ``size`` steps, no fewer than are stored; live rows are copied.

        Raises:
            MemoryError: there is not enough memory; nothing was changed.
        """
        assert size >= self.live_steps
        if self.layout and self.rows != size + self._rows_beside:
            stored, before, rows = self.snapshot(self.needed), self.columns, size + self._rows_beside
            self.columns = Columns(self.layout, rows, self.envs, self._in_records, frozenset(self.stacked))
            self.columns.append_span(stored)
            self.columns.ended[...] = before.ended
            self.columns.writer.take_over(before.writer)
        self._set_size(size, full_size)

    def shrink(self, size: int) -> None:
        """Reduce the capacity to ``size`` steps, and drop older ones; what they took is left for the side tables.

        Raises:
            MemoryError: there is not enough memory to copy the rows; only the older ones were dropped.
        """
        if self.steps - size > self.first:
            self.drop_before(self.steps - size)
        self.resize(size, self.full_size)

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
            self._set_size(size)
        self.allocate(layout, num_envs, size)

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

    def allocate(self, layout: Layout, num_envs: int, known: int | None = None, shrunk_to: int | None = None) -> None:
        """Set the layout, and allocate columns for it.

        Args:
            layout: shapes and dtypes of a transition's leaves.
            num_envs: environments in a step.
            known: the capacity of a ring to be restored, before it was shrunk.
            shrunk_to: its capacity then.
        """
        stacked = depths_of(layout, self.stacked_frames, self.owner)
        full_size = known if self.grows and known else self.size_of(layout, num_envs, known)
        self._set_size(full_size if shrunk_to is None else min(shrunk_to, full_size), full_size)
        self.layout, self.stacked, self.num_envs, self.envs = layout, stacked, num_envs, num_envs
        try:
            self.columns = Columns(layout, self.rows, num_envs, self._in_records, frozenset(stacked))
        except MemoryError as error:
            raise MemoryError(self._without_memory(frozenset(stacked))) from error

    def size_of(self, layout: Layout, num_envs: int, known: int | None = None) -> int:
        """Return how many steps of a layout fit; ``known`` is the capacity of a ring to be restored."""
        if self.limit is None or not layout:
            return self.size
        stacked = frozenset(depths_of(layout, self.stacked_frames, self.owner))
        one, two = (Columns(layout, rows, num_envs, self._in_records, stacked) for rows in (1, 2))
        return self.limit.size_of(one, two, num_envs, self._rows_beside, known, self.owner)

    def _without_memory(self, stacked: frozenset[Any]) -> str:
        """Return the message about columns that there is no memory for, with a size that takes less."""
        one, two = (Columns(self.layout, rows, self.envs, self._in_records, stacked).nbytes for rows in (1, 2))
        fewer = self.size // max(2, self.envs)
        taken = [f"{(one + (size + self._rows_beside - 1) * (two - one)) / 1e9:,.1f} GB" for size in (self.size, fewer)]
        steps = f"{self.size:,} steps of {self.envs} environment{'s' if self.envs > 1 else ''}"
        transitions = f", {self.size * self.envs:,} transitions," if self.envs > 1 else ""
        way_out = (
            f"reduce size: size={fewer} (--storage.size {fewer} of a command) takes {taken[1]}"
            if self.limit is None
            else "reduce max_bytes"
        )
        return f"{self.owner}: there is no memory for {steps}{transitions} which take {taken[0]}; {way_out}"

    def _set_size(self, size: int, full_size: int | None = None) -> None:
        self.size, self.full_size, self.rows = size, full_size or size, size + self._rows_beside
        if self.limit is not None:
            self.limit.leave_for_tables(size)


def _no_columns() -> Columns:
    return Columns({}, 0, 0, in_records=True)
