"""The way of steps into a ring's columns: which arrays a step brings, and where each of them goes."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.aside import Aside
from storages.core.column import Column
from storages.core.fields import Layout, Path, as_array, text
from storages.core.kernels.insert import ASIDE, NO_PLACE, insert_step
from storages.core.kernels.memory import addresses_of, data_address
from storages.transition import DONE, DONE2, IREW, OBS, OBS2, REW, TRUNC2, Array, Sample


class Inlet:
    """Stores steps in columns, by one compiled call each.

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
        fields: list[tuple[int, ...]] = []
        self._names_aside: list[str | None] = []
        for path, column in columns:
            source, follower = len(self._paths), -1
            self._paths.append(path)
            if column.successor:
                follower = len(self._paths)
                self._paths.append(column.successor)
            self._names_aside.append(text(path) if column.successor else None)
            float_bytes = column.data.itemsize if must_be_finite(path, column.data.dtype) else 0
            fields.append(
                (data_address(column.data), column.data.strides[1], column.width, source, follower, float_bytes, 0)
            )
        self._fields = np.array(fields, np.int64)
        self._sources = np.empty(len(self._paths), np.int64)
        self._flags = np.array([self._paths.index((key,)) for key in (DONE, DONE2, TRUNC2)], np.int64)
        self._numbers, self._numbers_stride = data_address(aside.numbers), aside.numbers.strides[1]
        self._places = 0
        self._expected = [
            (path[0], path[1] if len(path) > 1 else None, layout[path].dtype, (num_envs, *layout[path].shape))
            for path in self._paths
        ]
        self._keys = len({path[0] for path in layout})
        self._names = {key: sum(path[0] == key for path in layout) for key in (OBS, OBS2)}

    def usual(self, sample: Sample) -> list[Array] | None:
        """The arrays of a sample, to be inserted next; None where it has to be looked at more closely."""
        if len(sample) != self._keys:
            return None
        arrays: list[Array] = []
        for key, name, dtype, shape in self._expected:
            leaf = sample.get(key)
            if name is not None:
                if not isinstance(leaf, Mapping) or len(leaf) != self._names[key]:
                    return None
                leaf = leaf.get(name)
            if type(leaf) is not np.ndarray:
                if not isinstance(leaf, torch.Tensor):
                    return None
                leaf = as_array(leaf, (key,), "")
            if leaf.dtype != dtype or leaf.shape != shape:
                return None
            arrays.append(leaf)
        return arrays if addresses_of(self._sources, *arrays) else None

    def unusual(self, arrays: Mapping[Path, Array]) -> list[Array]:
        """Arrays of the right shapes and dtypes, to be inserted next."""
        whole = [np.ascontiguousarray(arrays[path]) for path in self._paths]
        self._sources[:] = [data_address(array) for array in whole]
        return whole

    def insert(
        self,
        slot: int,
        following: int,
        ended: NDArray[np.bool_],
        *,
        continues: bool,
        check: bool,
    ) -> int:
        """Store the arrays that :meth:`usual` or :meth:`unusual` gave, unless something is wrong with them.

        Args:
            slot: the step's row.
            following: the row after it.
            ended: (E,), which environments' episodes ended in the step before; written: in this one.
            continues: whether the others have to begin with what that led to.
            check: whether NaN and infinity are refused.

        Returns:
            What :func:`storages.core.kernels.insert.insert_step` says.
        """
        said = self._insert(slot, following, ended, continues, check)
        if said == NO_PLACE:
            self._aside.make_room_for(self._num_envs)
            said = self._insert(slot, following, ended, continues, check)
        return said

    def _insert(self, slot: int, following: int, ended: NDArray[np.bool_], continues: bool, check: bool) -> int:
        aside, envs = self._aside, self._num_envs
        if self._places != aside.places:
            # They lie elsewhere now.
            self._places = aside.places
            for field, name in enumerate(self._names_aside):
                self._fields[field, ASIDE] = 0 if name is None else data_address(aside.values(name))
        return insert_step(
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


def must_be_finite(path: Path, dtype: np.dtype[np.generic]) -> bool:
    """Whether NaN and infinity are refused in a leaf, unless they are allowed."""
    return path[0] in (REW, IREW, OBS, OBS2) and dtype.kind == "f"
