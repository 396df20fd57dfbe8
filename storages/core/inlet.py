"""The way of steps into a ring's columns: which arrays a step brings, and where each of them goes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.aside import Aside
from storages.core.column import Column
from storages.core.fields import Layout, Path, as_array, text
from storages.core.frames import FrameColumn
from storages.core.kernels.finite import all_finite
from storages.core.kernels.insert import ASIDE, NO_PLACE, insert_steps
from storages.core.kernels.memory import addresses_of, data_address
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
        self._num_envs, self._rows = num_envs, rows
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
        self._expected = [
            (path[0], path[1] if len(path) > 1 else None, layout[path].dtype, (num_envs, *layout[path].shape))
            for path in self._paths
        ]
        self._keys = len({path[0] for path in layout})
        self._names = {key: sum(path[0] == key for path in layout) for key in (OBS, OBS2)}
        # Compiled code knows no half precision.
        self._compiled = all(leaf.dtype != np.float16 for leaf in layout.values())
        self._taken: Sequence[Array] = ()
        self._sources = np.empty(len(self._paths), np.int64)
        self._lengths = np.array([num_envs * layout[p].count * layout[p].dtype.itemsize for p in self._paths], np.int64)
        self._differs = np.empty(num_envs, np.bool_)

    def take_usual(self, sample: Sample) -> bool:
        """Take a sample of just the arrays that there should be; False where it has to be looked at more closely."""
        if len(sample) != self._keys or not self._compiled:
            return False
        arrays: list[Array] = []
        for key, name, dtype, shape in self._expected:
            leaf = sample.get(key)
            if name is not None:
                if not isinstance(leaf, Mapping) or len(leaf) != self._names[key]:
                    return False
                leaf = leaf.get(name)
            if type(leaf) is not np.ndarray:
                if not isinstance(leaf, torch.Tensor):
                    return False
                leaf = as_array(leaf, (key,), "")
            if (leaf.dtype is not dtype and leaf.dtype != dtype) or leaf.shape != shape:
                return False
            arrays.append(leaf)
        self._taken = arrays
        return addresses_of(self._sources, *arrays)

    def take(self, arrays: Mapping[Path, Array]) -> None:
        """Take arrays of the right shapes and dtypes."""
        self._taken = [np.ascontiguousarray(arrays[path]) for path in self._paths]
        self._sources[:] = [data_address(array) for array in self._taken]

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
        self._taken = together.arrays
        self._sources[:] = [data_address(array) for array in self._taken]
        self._sources += first * self._lengths
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
        for path, column, source in self._stacks:
            begins, follows = self._sources[source : source + 2]
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
                self._lengths,
                self._fields,
                self._sources,
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
            if said != NO_PLACE:
                return stored
            aside.make_room_for(self._num_envs)

    def _store_stacks(self, step: int, starts: NDArray[np.bool_], ended: NDArray[np.bool_]) -> None:
        slot, following = step % self._rows, (step + 1) % self._rows
        for _, column, source in self._stacks:
            column.insert(slot, following, self._taken[source], self._sources[source + 1], starts)
        self._taken = ()
        if self._stacks and ended.any():
            envs = np.flatnonzero(ended)
            places = self._aside.numbers[slot, envs] % self._aside.places
            for path, column, _ in self._stacks:
                self._aside.values(text(path))[places] = column.bytes_in(following, envs)


def must_be_finite(path: Path, dtype: np.dtype[np.generic]) -> bool:
    """Whether NaN and infinity are refused in a leaf, unless they are allowed."""
    return path[0] in (REW, IREW, OBS, OBS2) and dtype.kind == "f"
