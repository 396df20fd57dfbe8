"""The way of steps into a ring's columns: which arrays a step brings, and where each of them goes."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from storages.core.aside import Aside
from storages.core.column import Column
from storages.core.fields import Layout, Path, as_array, text
from storages.core.frames import FrameColumn
from storages.core.kernels.finite import all_finite
from storages.core.kernels.insert import ASIDE, insert_steps
from storages.core.kernels.memory import ADDRESS, DESCRIBED, KIND, LENGTHS, MOST_AXES, data_address, describe, kind_of
from storages.transition import DONE, DONE2, IREW, OBS, OBS2, REW, TRUNC2, Array, Sample


class Slice(NamedTuple):
    """Many steps of the right shapes and dtypes."""

    steps: int
    arrays: Sequence[Array]
    """(steps, E, ...), each in one piece."""


class Inlet:
    """Stores steps in columns: one compiled call for all of them, and some more for stacked frames.

    A step is taken with :meth:`take_usual` or :meth:`take`, then stored with :meth:`store`. Of many steps, a slice is
    made once, then stored piece by piece.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        num_envs: environments in a step.
        columns: those that it stores in, by leaf.
        aside: where what episodes ended with goes.
        rows: of the columns, for each environment; step ``t`` lies in row ``t % rows``.
    """

    def __init__(
        self, layout: Layout, num_envs: int, columns: Iterable[tuple[Path, Column]], aside: Aside, rows: int
    ) -> None:
        self._rows = rows
        self._aside = aside
        self._paths: list[Path] = []
        self._stacks: list[tuple[Path, FrameColumn, int]] = []
        self._names_aside: list[str | None] = []
        fields: list[tuple[int, ...]] = []
        for path, column in columns:
            source, follower = len(self._paths), -1
            self._paths.append(path)
            if column.successor:
                follower = len(self._paths)
                self._paths.append(column.successor)
            if isinstance(column, FrameColumn):
                self._stacks.append((path, column, source))
                continue
            self._names_aside.append(text(path) if column.successor else None)
            float_bytes = column.data.itemsize if must_be_finite(path, column.data.dtype) else 0
            address, stride = data_address(column.data), column.data.strides[1]
            fields.append((address, stride, column.width, source, follower, float_bytes, 0))
        self._fields = np.array(fields, np.int64)
        self._flags = np.array([self._paths.index((key,)) for key in (DONE, DONE2, TRUNC2)], np.int64)
        self._numbers, self._numbers_stride = data_address(aside.numbers), aside.numbers.strides[1]
        self._places = 0
        self._keys, self._names = len({path[0] for path in layout}), [path[1:] for path in self._paths]
        self._flat = self._keys == len(self._paths)
        self._pick = itemgetter(*(path[0] for path in self._paths))
        self._as_usual = (np.ndarray,) * len(self._paths)
        self._leaves = {key: sum(path[0] == key for path in layout) for key, *name in layout if name}
        # Compiled code knows no half precision, and not many axes.
        self._compiled = all(leaf.dtype != np.float16 and len(leaf.shape) < MOST_AXES for leaf in layout.values())
        self._taken: Sequence[Array] = ()
        self._sources = np.zeros((len(self._paths), DESCRIBED), np.int64)
        self._expected = np.zeros_like(self._sources)
        for expected, path in zip(self._expected, self._paths, strict=True):
            leaf = layout[path]
            expected[ADDRESS] = num_envs * leaf.count * leaf.dtype.itemsize
            expected[KIND] = kind_of(leaf.dtype, 1 + len(leaf.shape), True)
            expected[LENGTHS : LENGTHS + 1 + len(leaf.shape)] = num_envs, *leaf.shape
        self._differs = np.empty(num_envs, np.bool_)

    def take_usual(self, sample: Sample) -> bool:
        """Take a sample of just the leaves that there should be, as arrays or tensors; False for any other."""
        if len(sample) != self._keys or not self._compiled:
            return False
        try:
            arrays: tuple[Any, ...] = self._pick(sample)
        except KeyError:
            return False
        if not self._flat:
            if not all(isinstance(sample[key], Mapping) and len(sample[key]) == n for key, n in self._leaves.items()):
                return False
            arrays = tuple(array.get(*name) if name else array for array, name in zip(arrays, self._names, strict=True))
        if tuple(map(type, arrays)) != self._as_usual:
            if not all(isinstance(array, np.ndarray | torch.Tensor) for array in arrays):
                return False
            arrays = tuple(as_array(array, path, "") for array, path in zip(arrays, self._paths, strict=True))
        self._taken = arrays
        try:
            describe(self._sources, *arrays)
        except (NumbaError, NotImplementedError):
            # Compiled code does not know one of the dtypes.
            return False
        return True

    def take(self, arrays: Mapping[Path, Array]) -> None:
        """Take arrays of the right shapes and dtypes."""
        self._set_sources([np.ascontiguousarray(arrays[path]) for path in self._paths])

    def slice_of(self, arrays: Mapping[Path, Array], steps: int) -> Slice | None:
        """Steps of the right shapes and dtypes; None where they cannot be stored by one call."""
        if self._stacks or not self._compiled:
            return None
        return Slice(steps, [np.ascontiguousarray(arrays[path]) for path in self._paths])

    def store_slice(
        self, together: Slice, first: int, most: int, step: int, ended: NDArray[np.bool_], *, check: bool
    ) -> int:
        """Store steps of a slice, up to the first that :meth:`store_usual` would not store.

        Args:
            together: the slice.
            first: position in it of the first to store.
            most: how many to store at most.
            step: number of that step.
            ended: as of :meth:`store_usual`.
            check: whether NaN and infinity are refused.

        Returns:
            How many were stored.
        """
        self._set_sources(together.arrays)
        self._sources[:, ADDRESS] += first * self._expected[:, ADDRESS]
        stored = self._store(min(most, together.steps - first), step, ended, True, check)
        self._taken = ()
        return stored

    def store_usual(self, step: int, ended: NDArray[np.bool_], *, check: bool) -> bool:
        """Store what was taken, unless it does not continue the step before it or something is wrong with it.

        Args:
            step: its number.
            ended: (E,), which environments' episodes ended in the step before; written: in this one.
            check: whether NaN and infinity are refused.

        Returns:
            Whether it was stored.
        """
        if not self._stacks:
            stored = self._store(1, step, ended, True, check)
            self._taken = ()
            return stored == 1
        if (self._sources[:, KIND:] != self._expected[:, KIND:]).any():
            return False
        for path, column, source in self._stacks:
            begins, follows = self._sources[source : source + 2, ADDRESS]
            if column.compare(begins, follows, self._differs) >= 0 or (self._differs & ~ended).any():
                return False
            checked = self._taken[source : source + 2] if check and must_be_finite(path, column.data.dtype) else ()
            if not all(all_finite(stacks.reshape(-1)) for stacks in checked):
                return False
        starts = ended.copy()
        if not self._store(1, step, ended, True, check):
            return False
        self._store_stacks(step, starts, ended)
        return True

    def store(self, step: int, ended: NDArray[np.bool_], starts: NDArray[np.bool_]) -> None:
        """Store what was taken, whatever it is.

        Args:
            step: its number.
            ended: (E,), written: which environments' episodes end with the step.
            starts: (E,), where it does not continue the step before it.
        """
        self._store(1, step, ended, False, False)
        self._store_stacks(step, starts, ended)

    def _set_sources(self, arrays: Sequence[Array]) -> None:
        self._taken = arrays
        self._sources[:] = self._expected
        self._sources[:, ADDRESS] = [data_address(array) for array in arrays]

    def _store(self, steps: int, step: int, ended: NDArray[np.bool_], continues: bool, check: bool) -> int:
        """How many of the steps at ``_sources`` were stored, before one that could not be."""
        aside, stored = self._aside, 0
        while True:
            if self._places != aside.places:
                # They lie elsewhere now.
                self._places = aside.places
                for field, name in enumerate(self._names_aside):
                    self._fields[field, ASIDE] = 0 if name is None else data_address(aside.values(name))
            more, said = insert_steps(
                steps - stored,
                step + stored,
                self._rows,
                self._fields,
                self._sources,
                self._expected,
                self._flags,
                ended,
                self._numbers,
                self._numbers_stride,
                self._places,
                aside.queue,
                continues,
                check,
            )
            stored += more
            if said >= 0:
                return stored
            aside.make_room_for(-said)

    def _store_stacks(self, step: int, starts: NDArray[np.bool_], ended: NDArray[np.bool_]) -> None:
        slot, following = step % self._rows, (step + 1) % self._rows
        for _, column, source in self._stacks:
            column.insert(slot, following, self._taken[source], self._sources[source + 1, ADDRESS], starts)
        self._taken = ()
        if self._stacks and ended.any():
            envs = np.flatnonzero(ended)
            places = self._aside.numbers[slot, envs] % self._aside.places
            for path, column, _ in self._stacks:
                self._aside.values(text(path))[places] = column.bytes_in(following, envs)


def must_be_finite(path: Path, dtype: np.dtype[np.generic]) -> bool:
    """Whether NaN and infinity are refused in a leaf, unless they are allowed."""
    return path[0] in (REW, IREW, OBS, OBS2) and dtype.kind == "f"
