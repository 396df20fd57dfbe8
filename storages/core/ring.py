"""The ring: columns of transitions, each observation once.

A column is an array ``(rows, E, ...)`` of which ``size`` rows are live at a time. What a step begins with (OBS, RHS) is
also what the step before it led to (OBS2, RHS2), so only the former is stored and the latter read from the next row.
That needs one row more than ``size``, for what the newest step led to, and a place aside for what episodes ended with,
because the row after an end begins the next episode. Places aside are handed out and freed in the order of time: they
form a queue, which grows to the most ends that were ever live at once.

Rows are numbered by a counter that only grows; row ``t`` lies in slot ``t % rows``. Transition ``t * E + e`` is what
environment ``e`` did in row ``t``. A number tells a transition from the one that overwrote it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.fields import (
    Layout,
    LeafLayout,
    Path,
    SampleError,
    first_layout,
    fit,
    nest,
    text,
)
from storages.core.kernels.finite import all_finite
from storages.core.kernels.gather import gather_rows, gather_successors
from storages.transition import DONE, DONE2, FLAGS, IREW, OBS, OBS2, REW, RHS, SUCCESSORS, TRUNC2, Array, Sample

NO_PLACE = -1
_SMALLEST_QUEUE = 16


class Ring:
    """Columns of transitions for ``size`` steps of any number of environments.

    Args:
        size: live steps that fit.
        owner: the storage's name, for errors.
        num_envs: environments in a step; the first sample says so where None.
        allow_nonfinite: accept NaN and infinity in rewards and observations.
    """

    def __init__(self, size: int, owner: str, num_envs: int | None = None, allow_nonfinite: bool = False) -> None:
        self.size = size
        self.rows = size + 1
        self.owner = owner
        self.num_envs = num_envs
        self.allow_nonfinite = allow_nonfinite
        self.first = 0
        """Number of the oldest row since the last reset; rows before it are gone."""
        self.steps = 0
        """Number of the next row."""
        self.layout: Layout = {}
        self._columns: dict[Path, _Column] = {}
        self._computed: dict[Path, _Column] = {}
        self._aside_numbers: NDArray[np.int64] = np.empty((0, 0), np.int64)
        self._aside_head = 0
        self._aside_tail = 0
        self._aside_places = 0
        self._ended: NDArray[np.bool_] = np.empty((0, 1), np.bool_)

    @property
    def envs(self) -> int:
        """How many environments a step has, once that is known."""
        assert self.num_envs is not None
        return self.num_envs

    # What is live

    @property
    def oldest(self) -> int:
        """Number of the oldest live row."""
        return max(self.first, self.steps - self.size)

    @property
    def live_steps(self) -> int:
        """How many rows are live."""
        return self.steps - self.oldest

    @property
    def live_transitions(self) -> int:
        """How many transitions are live."""
        return self.live_steps * (self.num_envs or 0)

    @property
    def start(self) -> int:
        """Number of the oldest live transition."""
        return self.oldest * self.envs

    @property
    def end(self) -> int:
        """Number of the next transition."""
        return self.steps * self.envs

    @property
    def nbytes(self) -> int:
        """Bytes that the columns, the places aside and their numbers take."""
        return sum(column.nbytes for column in self._all_columns().values()) + self._aside_numbers.nbytes

    # In

    def init_columns(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a first sample and make room for ``size`` steps like it.

        Raises:
            SampleError: the sample is no sample, or the layout is fixed already and is another one.
        """
        if self._columns:
            fit(sample, self.layout, self.envs, self.owner)
        else:
            self._make_columns(*self._layout_of(sample))

    def insert(self, sample: Sample) -> None:
        """Store one step: ``E`` transitions.

        Raises:
            SampleError: the sample does not fit the first one, or holds NaN or infinity. Nothing was stored.
        """
        layout, num_envs = (self.layout, self.envs) if self._columns else self._layout_of(sample)
        arrays = fit(sample, layout, num_envs, self.owner)
        if not self.allow_nonfinite:
            self._refuse_nonfinite(arrays)
        if not self._columns:
            self._make_columns(layout, num_envs)
        slot, following = self.steps % self.rows, (self.steps + 1) % self.rows
        if self.steps > self.first:
            self._keep_what_is_not_continued(arrays)
        self._free_places_of(following)
        ended = arrays[(DONE2,)] | arrays[(TRUNC2,)]
        for path, column in self._columns.items():
            column.data[slot] = arrays[path]
            if column.successor:
                column.data[following] = arrays[column.successor]
        if ended.any():
            self._put_aside(self.steps, ended[:, 0])
        self._ended = ended
        self.steps += 1
        self._computed = {}

    def break_off(self) -> None:
        """Say that nothing continues the newest step, whatever comes next."""
        if self.steps > self.first and not self._ended.all():
            self._put_aside(self.steps - 1, ~self._ended[:, 0])
            self._ended = np.ones_like(self._ended)

    def forget_columns(self) -> None:
        """Let the next sample fix shapes and dtypes anew; nothing may be stored."""
        assert self.steps == self.first
        self.layout, self._columns, self._computed = {}, {}, {}

    def reset(self) -> None:
        """Forget every row, keep the memory. Rows start at slot 0 again, so that a rollout lies in one piece."""
        self.steps += -self.steps % self.rows
        self.first = self.steps
        self._aside_tail = self._aside_head
        self._aside_numbers.fill(NO_PLACE)
        self._computed = {}

    def overwrite(self, path: Path, values: Array, start: int) -> None:
        """Replace a field's values in the live rows from the ``start``-th oldest on.

        What was computed from the field is dropped.

        Raises:
            SampleError: the field does not exist, is an observation or a flag (their neighbours depend on them), or the
                values do not fit, or hold NaN or infinity where that is refused. Nothing was replaced.
        """
        columns = self._all_columns()
        if path not in columns or path[0] in FLAGS or path[0] in (OBS, RHS):
            replaceable = [text(p) for p in columns if p[0] not in FLAGS and p[0] not in (OBS, RHS)]
            raise SampleError(
                f"{self.owner}: {text(path)} cannot be replaced on its own, only {', '.join(replaceable)}"
            )
        column, layout = columns[path], columns[path].layout
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
        if not self.allow_nonfinite and _must_be_finite(path, values) and not _finite(values):
            step, *position = (int(axis[0]) for axis in np.nonzero(~np.isfinite(values)))
            raise SampleError(
                f"{self.owner}: {text(path)} of environment {position[0]} is {values[(step, *position)]} at step "
                f"{start + step}; nothing was replaced. allow_nonfinite=True would keep it"
            )
        rows = (self.oldest + start + np.arange(len(values))) % self.rows
        column.data[rows] = values
        if path in self._columns:
            self._computed = {}

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
        rows = self.rows_of(transitions)
        last_rows = rows if last is None else self.rows_of(last)
        flat: dict[Path, Array] = {}
        for path, column in self._all_columns().items():
            if keys is None or path[0] in keys:
                flat[path] = column.gather(last_rows if path[0] in (DONE2, TRUNC2) else rows)
            if column.successor and (keys is None or column.successor[0] in keys):
                flat[column.successor] = column.gather_successors(last_rows, self.aside_numbers, self.envs)
        return nest(flat)

    def gather_leaf(self, path: Path, transitions: NDArray[np.int64]) -> Array:
        """Copies of one leaf of some live transitions, (B, ...); of an observation or of what followed it."""
        rows = self.rows_of(transitions)
        if path[0] in SUCCESSORS:
            column = self._columns[(SUCCESSORS[path[0]], *path[1:])]
            return column.gather_successors(rows, self.aside_numbers, self.envs)
        return self._all_columns()[path].gather(rows)

    def rows_of(self, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where transitions lie: of all the rows of a step after the other, (B,)."""
        return transitions % (self.rows * self.envs)

    def column(self, key: str) -> Array:
        """A view (rows, E, ...) of a field's memory, row ``t`` in slot ``t % rows``; what is not live is anything."""
        data: Array = self._all_columns()[(key,)].data
        return data

    @property
    def aside_numbers(self) -> NDArray[np.int64]:
        """(rows * E, 1): for each row the number of what stands aside for it, -1 where the next row continues it."""
        return self._aside_numbers.reshape(-1, 1)

    def rollout(self, key: str) -> Array:
        """A view (live_steps, E, ...) of a field, in one piece if no more than ``size`` steps came since a reset."""
        start = self.first % self.rows
        view: Array = self._all_columns()[(key,)].data[start : start + self.live_steps]
        return view

    def broken(self) -> NDArray[np.bool_]:
        """(live_steps, E): after this transition its environment did not go on in the next row (an end, or a cut)."""
        rows = np.arange(self.oldest, self.steps) % self.rows
        return self._aside_numbers[rows] >= 0

    def has_computed(self, key: str) -> bool:
        """Whether a field was computed from what is stored now."""
        return (key,) in self._computed

    def add_computed(self, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Make room for a field that is computed from the others; it stands until they change."""
        if (key,) not in self._computed:
            self._computed[(key,)] = _Column(LeafLayout(shape, dtype), self.rows, self.envs, None)

    # To and from disk

    def state_dict(self) -> dict[str, Any]:
        """Everything live, oldest row first, as tensors and plain data."""
        if not self._columns:
            return {
                "size": self.size,
                "num_envs": self.num_envs,
                "steps": self.steps,
                "first": self.first,
                "leaves": [],
            }
        live = np.arange(self.oldest, self.steps) % self.rows
        with_newest = np.arange(self.oldest, self.steps + 1) % self.rows
        aside = np.arange(self._aside_tail, self._aside_head)
        numbers = self._aside_numbers[live]
        return {
            "size": self.size,
            "num_envs": self.num_envs,
            "steps": self.steps,
            "first": self.first,
            "aside_numbers": torch.from_numpy(np.where(numbers >= 0, numbers - self._aside_tail, NO_PLACE)),
            "ended": torch.from_numpy(self._ended.copy()),
            "leaves": [
                {
                    "path": list(path),
                    "rows": torch.from_numpy(column.data[with_newest if column.successor else live]),
                    "aside": torch.from_numpy(column.aside_rows(aside)) if column.successor else None,
                }
                for path, column in self._columns.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hold exactly what was saved; of the same size and number of environments."""
        if self.num_envs is not None and state["num_envs"] not in (None, self.num_envs):
            raise ValueError(f"{self.owner}: made for {self.num_envs} environments, saved with {state['num_envs']}")
        if state["size"] != self.size:
            raise ValueError(f"{self.owner}: made with size {self.size}, saved with {state['size']}")
        self.steps, self.first = state["steps"], state["first"]
        if not state["leaves"]:
            self.layout, self._columns, self._computed = {}, {}, {}
            return
        rows = {tuple(leaf["path"]): leaf["rows"].numpy() for leaf in state["leaves"]}
        layout = {path: LeafLayout(array.shape[2:], array.dtype) for path, array in rows.items()}
        layout |= {(SUCCESSORS_OF[p[0]], *p[1:]): leaf for p, leaf in layout.items() if p[0] in SUCCESSORS_OF}
        self._make_columns(layout, state["num_envs"])
        live = np.arange(self.oldest, self.steps) % self.rows
        with_newest = np.arange(self.oldest, self.steps + 1) % self.rows
        self._aside_numbers[live] = state["aside_numbers"].numpy()
        self._ended = state["ended"].numpy().copy()
        places_taken = int((state["aside_numbers"] >= 0).sum())
        self._reserve_places(places_taken)
        self._aside_head = places_taken
        for leaf in state["leaves"]:
            column = self._columns[tuple(leaf["path"])]
            column.data[with_newest if column.successor else live] = leaf["rows"].numpy()
            if column.successor:
                column.put_aside_rows(np.arange(places_taken), leaf["aside"].numpy())

    # Inside

    def _layout_of(self, first_sample: Sample) -> tuple[Layout, int]:
        layout, num_envs = first_layout(first_sample, self.owner)
        if self.num_envs is not None and self.num_envs != num_envs:
            raise SampleError(f"{self.owner}: made for {self.num_envs} environments, the sample holds {num_envs}")
        return layout, num_envs

    def _make_columns(self, layout: Layout, num_envs: int) -> None:
        self.layout, self.num_envs = layout, num_envs
        self._computed = {}
        self._columns = {
            path: _Column(leaf, self.rows, num_envs, _successor_of(path, layout))
            for path, leaf in layout.items()
            if path[0] not in SUCCESSORS
        }
        self._aside_numbers = np.full((self.rows, num_envs), NO_PLACE, np.int64)
        self._aside_head = self._aside_tail = 0
        self._aside_places = _SMALLEST_QUEUE
        self._ended = np.zeros((num_envs, 1), np.bool_)

    def _all_columns(self) -> dict[Path, "_Column"]:
        return self._columns | self._computed if self._computed else self._columns

    def _chained(self) -> Iterator[tuple[Path, "_Column"]]:
        return ((path, column) for path, column in self._columns.items() if column.successor)

    def _keep_what_is_not_continued(self, arrays: Mapping[Path, Array]) -> None:
        """What the newest step led to is about to be overwritten by what this one begins with: keep it if they differ.

        They do when a stream of experience was interrupted without an end: a run resumed with new episodes, slices of
        several workers one after the other.
        """
        slot = self.steps % self.rows
        done = arrays[(DONE,)]
        differs = np.zeros((self.envs,), np.bool_)
        if done.tobytes() != self._ended.tobytes():
            differs |= done[:, 0]
        for path, column in self._chained():
            stored, begins = column.data[slot], arrays[path]
            if stored.tobytes() != begins.tobytes():
                as_bytes = np.ascontiguousarray(begins).view(np.uint8).reshape(self.envs, -1)
                differs |= (stored.view(np.uint8).reshape(self.envs, -1) != as_bytes).any(axis=1)
        differs &= ~self._ended[:, 0]
        if differs.any():
            self._put_aside(self.steps - 1, differs)

    def _put_aside(self, row: int, which: NDArray[np.bool_]) -> None:
        """Keep, for some environments, what row ``row`` led to: it lies in the next slot and will be overwritten."""
        envs = np.flatnonzero(which)
        self._reserve_places(self._aside_head - self._aside_tail + len(envs))
        numbers = self._aside_head + np.arange(len(envs))
        self._aside_head += len(envs)
        self._aside_numbers[row % self.rows, envs] = numbers
        for _, column in self._chained():
            column.put_aside_rows(numbers, column.data[(row + 1) % self.rows, envs])

    def _free_places_of(self, slot: int) -> None:
        if self._aside_head > self._aside_tail:
            numbers = self._aside_numbers[slot]
            self._aside_tail += int(np.count_nonzero(numbers >= 0))
            numbers.fill(NO_PLACE)

    def _reserve_places(self, needed: int) -> None:
        places = self._aside_places
        while places < needed:
            places *= 2
        if places > self._aside_places:
            held = np.arange(self._aside_tail, self._aside_head)
            for _, column in self._chained():
                column.resize_aside(places, held)
            self._aside_places = places

    def _refuse_nonfinite(self, arrays: Mapping[Path, Array]) -> None:
        for path, array in arrays.items():
            if _must_be_finite(path, array) and not _finite(array):
                position = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(array)))
                raise SampleError(
                    f"{self.owner}: {text(path)} of environment {position[0]} is {array[position]} at step "
                    f"{self.steps} (position {position[1:]}); nothing of this step was stored. "
                    f"allow_nonfinite=True would keep it"
                )


SUCCESSORS_OF = {first: successor for successor, first in SUCCESSORS.items()}


class _Column:
    """One leaf's values (rows, E, *shape), and, where the next row is its successor, those that stand aside."""

    def __init__(self, layout: LeafLayout, rows: int, num_envs: int, successor: Path | None) -> None:
        self.layout = layout
        self.successor = successor
        self.data = np.zeros((rows, num_envs, *layout.shape), layout.dtype)
        self._bytes = _as_bytes(self.data)
        self._aside = np.zeros((_SMALLEST_QUEUE, self._bytes.shape[1]), np.uint8)

    def __getstate__(self) -> dict[str, Any]:
        # In a copy the view of the bytes would be a second array, which goes its own way.
        return {name: value for name, value in self.__dict__.items() if name != "_bytes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bytes = _as_bytes(self.data)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + (self._aside.nbytes if self.successor else 0)

    def gather(self, rows: NDArray[np.int64]) -> Array:
        out = np.empty((len(rows), self._bytes.shape[1]), np.uint8)
        gather_rows(self._bytes, rows, out)
        return self._typed(out)

    def gather_successors(self, rows: NDArray[np.int64], aside_numbers: NDArray[np.int64], num_envs: int) -> Array:
        out = np.empty((len(rows), self._bytes.shape[1]), np.uint8)
        gather_successors(self._bytes, self._aside, aside_numbers, rows, num_envs, out)
        return self._typed(out)

    def put_aside_rows(self, numbers: NDArray[np.int64], values: Array) -> None:
        as_bytes = np.ascontiguousarray(values).reshape(len(numbers), self.layout.count).view(np.uint8)
        self._aside[numbers % len(self._aside)] = as_bytes

    def aside_rows(self, numbers: NDArray[np.int64]) -> Array:
        return self._typed(self._aside[numbers % len(self._aside)])

    def resize_aside(self, places: int, held: NDArray[np.int64]) -> None:
        grown = np.zeros((places, self._bytes.shape[1]), np.uint8)
        grown[held % places] = self._aside[held % len(self._aside)]
        self._aside = grown

    def _typed(self, rows: NDArray[np.uint8]) -> Array:
        return rows.view(self.layout.dtype).reshape(len(rows), *self.layout.shape)


def _as_bytes(data: Array) -> NDArray[np.uint8]:
    """A view with a row for each transition."""
    return data.reshape(data.shape[0] * data.shape[1], -1).view(np.uint8)


def _successor_of(path: Path, layout: Layout) -> Path | None:
    successor = (SUCCESSORS_OF.get(path[0], ""), *path[1:])
    return successor if successor in layout else None


def _must_be_finite(path: Path, array: Array) -> bool:
    return path[0] in (REW, IREW, OBS, OBS2) and array.dtype.kind == "f"


def _finite(array: Array) -> bool:
    if array.dtype.itemsize < 4 or array.dtype.itemsize > 8:
        return bool(np.isfinite(array).all())
    return bool(all_finite(np.ascontiguousarray(array).ravel()))
