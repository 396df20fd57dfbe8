"""The way of steps into a ring's columns: which arrays a step brings, and where each of them goes."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels import insert as kernel
from storages.core.kernels.array_layout import can_describe
from storages.core.kernels.finite import all_finite
from storages.core.kernels.memory import ADDRESS, DESCRIBED, KIND, LENGTHS, MOST_AXES, data_address, describe, kind_of
from storages.core.ring.column import Column
from storages.core.ring.frames import FrameColumn
from storages.core.ring.layout import FieldKey, Layout, SampleError, as_array, text
from storages.core.ring.side_table import SideTable
from storages.transition import ACT, DONE, DONE2, IREW, IVAL, LOGP, OBS, OBS2, REW, TRUNC2, VAL, Array, Sample


class Slice(NamedTuple):
    """Many steps of the right shapes and dtypes."""

    steps: int
    arrays: Sequence[Array]
    """(steps, E, ...), each in one piece."""


class RingWriter:
    """Stores steps in columns: one compiled call for all of them, and some more for stacked frames.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        num_envs: environments in a step.
        columns: those that it stores in, by leaf.
        aside: where what episodes ended with goes.
        rows: of the columns, for each environment; step ``t`` lies in row ``t % rows``.
    """

    def __init__(
        self, layout: Layout, num_envs: int, columns: Iterable[tuple[FieldKey, Column]], aside: SideTable, rows: int
    ) -> None:
        self._rows = rows
        self._aside = aside
        self._paths: list[FieldKey] = []
        self._stacks: list[tuple[FieldKey, FrameColumn, int]] = []
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
            float_bytes = _float_bytes(column.data.dtype) if must_be_finite(path, column.data.dtype) else 0
            address, stride = data_address(column.data), column.data.strides[1]
            fields.append((address, stride, column.width, source, follower, float_bytes, 0))
        self._keys, self._names = len({path[0] for path in layout}), [path[1:] for path in self._paths]
        self._flat = self._keys == len(self._paths)
        self._pick = itemgetter(*(path[0] for path in self._paths))
        self._leaves = {key: sum(path[0] == key for path in layout) for key, *name in layout if name}
        # Compiled code knows no half precision, and not many axes.
        self._compiled = all(leaf.dtype != np.float16 and len(leaf.shape) < MOST_AXES for leaf in layout.values())
        self._reads_arrays = self._compiled and can_describe()
        self._fields = np.array(fields, np.int64).reshape(-1, kernel.FIELD_COLUMNS)
        self._sources = np.zeros((len(self._paths), DESCRIBED), np.int64)
        self._expected = np.zeros_like(self._sources)
        for expected, path in zip(self._expected, self._paths, strict=True):
            leaf = layout[path]
            expected[ADDRESS] = num_envs * leaf.count * leaf.dtype.itemsize
            expected[KIND] = kind_of(leaf.dtype, 1 + len(leaf.shape))
            expected[LENGTHS : LENGTHS + 1 + len(leaf.shape)] = num_envs, *leaf.shape
        self._ended: NDArray[np.bool_] | None = None
        self._places = 0
        self._differs = np.empty(num_envs, np.bool_)
        self._way = self._made_way(num_envs)
        self._way_in = data_address(self._way)

    def store_usual(self, sample: Sample, step: int, ended: NDArray[np.bool_], *, check: bool) -> bool:
        """Store a step that is as usual: just the leaves that there should be, and what continues the step before it.

        Args:
            sample: the step.
            step: its number.
            ended: (E,), which environments' episodes ended in the step before; written: in this one.
            check: whether NaN and infinity are refused.

        Returns:
            Whether it was stored. What is wrong with it otherwise, if anything is, has to be found out.
        """
        if len(sample) != self._keys or not self._reads_arrays:
            return False
        try:
            arrays: Any = self._pick(sample)
        except KeyError:
            return False
        if not self._flat:
            arrays = self._leaves_of(sample, arrays)
        if arrays is None:
            return False
        if self._stacks:
            return self._store_usual_stacks(arrays, step, ended, check)
        if self._store(arrays, 1, step, ended, True, check):
            return True
        if self._way[kernel.SAID] != kernel.NO_ARRAYS:
            return False
        plain = self._plain(arrays)
        return plain is not None and self._store(plain, 1, step, ended, True, check) == 1

    def store(
        self, arrays: Mapping[FieldKey, Array], step: int, ended: NDArray[np.bool_], starts: NDArray[np.bool_]
    ) -> None:
        """Store a step, whatever it is.

        Args:
            arrays: (E, ...), of the right shapes and dtypes.
            step: its number.
            ended: (E,), written: which environments' episodes end with the step.
            starts: (E,), where it does not continue the step before it.
        """
        together = [np.ascontiguousarray(arrays[path]) for path in self._paths]
        self._set_sources(together)
        self._store(None, 1, step, ended, False, False)
        self._store_stacks(together, step, starts, ended)

    def slice_of(self, arrays: Mapping[FieldKey, Array], steps: int) -> Slice | None:
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
        return self._store(None, min(most, together.steps - first), step, ended, True, check)

    # Inside

    def _made_way(self, num_envs: int) -> NDArray[np.int64]:
        """What the kernel is to know of this, see :data:`storages.core.kernels.insert.FIELDS`."""
        way = np.zeros(kernel.WAY_IN, np.int64)
        way[kernel.FIELDS], way[kernel.FIELD_COUNT] = data_address(self._fields), len(self._fields)
        way[kernel.SOURCES], way[kernel.SOURCE_COUNT] = data_address(self._sources), len(self._sources)
        way[kernel.EXPECTED] = data_address(self._expected)
        way[kernel.ARRAY_TYPE] = id(np.ndarray)
        flags = (kernel.DONE_SOURCE, DONE), (kernel.TERMINATED_SOURCE, DONE2), (kernel.TRUNCATED_SOURCE, TRUNC2)
        for place, key in flags:
            way[place] = self._paths.index((key,))
        way[kernel.ROWS], way[kernel.ENVS] = self._rows, num_envs
        numbers = self._aside.numbers
        way[kernel.NUMBERS], way[kernel.NUMBERS_STRIDE] = data_address(numbers), numbers.strides[1]
        way[kernel.QUEUE] = data_address(self._aside.queue)
        return way

    def _leaves_of(self, sample: Sample, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """The leaves of fields, of which some are dicts of just those that there should be; None for any others."""
        if not all(isinstance(sample[key], Mapping) and len(sample[key]) == n for key, n in self._leaves.items()):
            return None
        return tuple(value.get(*name) if name else value for value, name in zip(values, self._names, strict=True))

    def _plain(self, arrays: Sequence[Any]) -> tuple[Array, ...] | None:
        """Arrays in place of tensors, and of what extends arrays; None where something cannot be one."""
        try:
            return tuple(np.asarray(as_array(leaf, path, "")) for leaf, path in zip(arrays, self._paths, strict=True))
        except SampleError:
            return None

    def _set_sources(self, arrays: Sequence[Array]) -> None:
        """Say where arrays of the right shapes and dtypes are; they have to be held until all is stored."""
        self._sources[:] = self._expected
        self._sources[:, ADDRESS] = [data_address(array) for array in arrays]

    def _store(
        self,
        arrays: tuple[Any, ...] | None,
        steps: int,
        step: int,
        ended: NDArray[np.bool_],
        continues: bool,
        check: bool,
    ) -> int:
        """How many of the steps were stored, before one that could not be; no ``arrays`` where ``_sources`` is set."""
        if ended is not self._ended:
            self._ended, self._way[kernel.ENDED] = ended, data_address(ended)
        described, stored = 0 if arrays is None else id(arrays), 0
        while True:
            if self._places != self._aside.places:
                self._find_places()
            stored += kernel.insert_steps(self._way_in, described, steps - stored, step + stored, continues, check)
            if stored == steps or self._way[kernel.SAID] >= 0:
                return stored
            self._aside.make_room_for(-int(self._way[kernel.SAID]))

    def _find_places(self) -> None:
        """What stands aside lies elsewhere now."""
        self._places = self._way[kernel.PLACES] = self._aside.places
        for field, name in enumerate(self._names_aside):
            self._fields[field, kernel.ASIDE] = 0 if name is None else data_address(self._aside.values(name))

    def _store_usual_stacks(self, leaves: tuple[Any, ...], step: int, ended: NDArray[np.bool_], check: bool) -> bool:
        arrays = leaves
        if not describe(self._sources, id(leaves), id(np.ndarray)):
            plain = self._plain(leaves)
            if plain is None or not describe(self._sources, id(plain), id(np.ndarray)):
                return False
            arrays = plain
        if (self._sources[:, KIND:] != self._expected[:, KIND:]).any():
            return False
        for path, column, source in self._stacks:
            begins, follows = self._sources[source : source + 2, ADDRESS]
            if column.compare(begins, follows, self._differs) >= 0 or (self._differs & ~ended).any():
                return False
            checked = arrays[source : source + 2] if check and must_be_finite(path, column.data.dtype) else ()
            if not all(all_finite(stacks.reshape(-1)) for stacks in checked):
                return False
        starts = ended.copy()
        if not self._store(None, 1, step, ended, True, check):
            return False
        self._store_stacks(arrays, step, starts, ended)
        return True

    def _store_stacks(
        self, arrays: Sequence[Array], step: int, starts: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> None:
        slot, following = step % self._rows, (step + 1) % self._rows
        for _, column, source in self._stacks:
            column.insert(slot, following, arrays[source], self._sources[source + 1, ADDRESS], starts)
        if self._stacks and ended.any():
            envs = np.flatnonzero(ended)
            places = self._aside.numbers[slot, envs] % self._aside.places
            for path, column, _ in self._stacks:
                self._aside.values(text(path))[places] = column.bytes_in(following, envs)


def must_be_finite(path: FieldKey, dtype: np.dtype[np.generic]) -> bool:
    """Whether NaN and infinity are refused in a leaf, unless they are allowed."""
    return path[0] in _FINITE and dtype.kind in "fc"


def _float_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes of the floats that numbers are, or that complex ones are pairs of."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


_FINITE = frozenset({OBS, OBS2, ACT, REW, IREW, VAL, IVAL, LOGP})
