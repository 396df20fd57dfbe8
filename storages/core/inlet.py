"""The way of steps into a ring's columns: which arrays a step brings, and where each of them goes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.aside import Aside
from storages.core.column import Column
from storages.core.fields import Layout, Path, as_array, text
from storages.core.frames import FrameColumn
from storages.core.kernels.finite import all_finite
from storages.core.kernels.insert import ASIDE, BROKEN_OFF, NO_PLACE, NOT_FINITE, STORED, insert_step
from storages.core.kernels.memory import addresses_of, data_address
from storages.transition import DONE, DONE2, IREW, OBS, OBS2, REW, TRUNC2, Array, Sample


class Inlet:
    """Stores steps in columns: one compiled call for all of them, and some more for stacked frames.

    A step is taken with :meth:`take_usual` or :meth:`take`, then stored with :meth:`store`.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        num_envs: environments in a step.
        columns: those that it stores in, by leaf.
        aside: where what episodes ended with goes.
    """

    def __init__(self, layout: Layout, num_envs: int, columns: Iterable[tuple[Path, Column]], aside: Aside) -> None:
        self._num_envs = num_envs
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

    def store_usual(self, slot: int, following: int, ended: NDArray[np.bool_], *, check: bool) -> int:
        """Store what was taken, unless it does not continue the step before it or something is wrong with it.

        Args:
            slot: the step's row.
            following: the row after it.
            ended: (E,), which environments' episodes ended in the step before; written: in this one.
            check: whether NaN and infinity are refused.

        Returns:
            What :func:`storages.core.kernels.insert.insert_step` says.
        """
        if not self._stacks:
            said = self._store(slot, following, ended, True, check)
            self._taken = ()
            return said
        for path, column, source in self._stacks:
            begins, follows = self._sources[source : source + 2]
            if column.compare(begins, follows, self._differs) >= 0 or (self._differs & ~ended).any():
                return BROKEN_OFF
            checked = self._taken[source : source + 2] if check and must_be_finite(path, column.data.dtype) else ()
            if not all(all_finite(stacks.reshape(-1)) for stacks in checked):
                return NOT_FINITE
        starts = ended.copy()
        said = self._store(slot, following, ended, True, check)
        if said == STORED:
            self._store_stacks(slot, following, starts, ended)
        return said

    def store(self, slot: int, following: int, ended: NDArray[np.bool_], starts: NDArray[np.bool_]) -> None:
        """Store what was taken, whatever it is.

        Args:
            slot: the step's row.
            following: the row after it.
            ended: (E,), written: which environments' episodes end with the step.
            starts: (E,), where it does not continue the step before it.
        """
        self._store(slot, following, ended, False, False)
        self._store_stacks(slot, following, starts, ended)

    def _store(self, slot: int, following: int, ended: NDArray[np.bool_], continues: bool, check: bool) -> int:
        aside, envs = self._aside, self._num_envs
        while True:
            if self._places != aside.places:
                # They lie elsewhere now.
                self._places = aside.places
                for field, name in enumerate(self._names_aside):
                    self._fields[field, ASIDE] = 0 if name is None else data_address(aside.values(name))
            said = insert_step(
                self._fields,
                self._sources,
                self._flags,
                slot * envs,
                following * envs,
                ended,
                self._numbers,
                self._numbers_stride,
                self._places,
                aside.queue,
                continues,
                check,
            )
            if said != NO_PLACE:
                return said
            terminated, truncated = (self._taken[flag] for flag in self._flags[1:])
            aside.make_room_for(int(np.count_nonzero(terminated | truncated)))

    def _store_stacks(self, slot: int, following: int, starts: NDArray[np.bool_], ended: NDArray[np.bool_]) -> None:
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
