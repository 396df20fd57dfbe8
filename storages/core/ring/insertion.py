"""Insertion of steps into a ring's columns: the fast path, and the write of validated steps of the slow path."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from storages.core.kernels import insert as kernel
from storages.core.kernels.memory import data_address
from storages.core.kernels.stacks import STACK, insert_steps_with_stacks
from storages.core.ring.addresses import AddressTable, must_be_finite
from storages.core.ring.frames import FrameColumn
from storages.core.ring.layout import FieldKey, Layout, SampleError, as_array, text
from storages.core.ring.side_table import SideTable
from storages.transition import Array, Sample

COMPILED_AFTER_STEPS = 100
"""Steps of a layout after which its fast path is compiled; for fewer, plain Python is quicker than the compiler."""
_COMPILED_FOR: set[tuple[bool, Any]] = set()
"""Pairs (has stacks, array types) for which this process has compiled a fast path already."""


class StepBlock(NamedTuple):
    """Many steps of the right shapes and dtypes."""

    steps: int
    arrays: Sequence[Array]
    """(steps, E, ...), contiguous."""


class RingWriter:
    """Stores steps in columns, by one compiled call for all columns and one more for stacked frames.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        num_envs: environments in a step.
        addresses: of the columns; replaced by the owner when memory moves.
        stacks: the columns of stacked frames.
        finals: the side table of final observations.
        ended: (E,) bool, whether each episode ended in the newest step; written.
    """

    def __init__(
        self,
        layout: Layout,
        num_envs: int,
        addresses: AddressTable,
        stacks: Mapping[FieldKey, FrameColumn],
        finals: SideTable,
        ended: NDArray[np.bool_],
    ) -> None:
        self.addresses = addresses
        self._finals, self._ended = finals, ended
        self._keys = addresses.keys
        self._expected = [(layout[key].dtype, (num_envs, *layout[key].shape)) for key in self._keys]
        self._stacks = [(key, column, self._keys.index(key)) for key, column in stacks.items()]
        self._table = np.empty(0, STACK)
        self._stacks_of: AddressTable | None = None
        """The addresses from which the table of stacks was made."""
        self._field_count = len({key[0] for key in layout})
        leaf_counts = {field: sum(key[0] == field for key in layout) for field, *name in layout if name}
        # Not bound methods: a reference cycle would keep the ring's memory until the garbage collector runs.
        self._pick = self._pick_leaves = _leaf_picker(self._keys, leaf_counts)
        self._pick_arrays = _array_picker(self._pick_leaves, self._keys)
        self._compiled: kernel.ArrayReader | None = None
        """Stores a step or, for layouts with stacks, only reads its arrays."""
        self._left_to_python = COMPILED_AFTER_STEPS

    def take_over(self, other: "RingWriter") -> None:
        """Use the compiled fast path of another writer of the same layout."""
        self._pick, self._compiled, self._left_to_python = other._pick, other._compiled, other._left_to_python

    def append(self, sample: Sample, step: int, check: bool) -> bool:
        """Append one step if its fields match the layout and it continues the previous step.

        Args:
            sample: the step.
            step: its number.
            check: refuse NaN and infinity.

        Returns:
            False, with nothing written, if the slow path must validate the step.
        """
        if len(sample) != self._field_count:
            return False
        try:
            arrays, compiled = self._pick(sample), self._compiled
            if (
                compiled is not None
                and compiled(self.addresses.context_address, step, check, arrays)
                and (not self._stacks or self._insert_next(step, check, 1))
            ):
                return True
        except KeyError:
            return False
        except (TypeError, SampleError):
            # Array types that the function is not compiled for, or no arrays.
            pass
        return self._append_by_python(sample, step, check)

    def store(self, arrays: Mapping[FieldKey, Array], step: int, starts: NDArray[np.bool_]) -> None:
        """Store a step that was validated.

        Args:
            arrays: (E, ...), of the right shapes and dtypes.
            step: its number.
            starts: (E,), where it does not continue the previous step.
        """
        block = [np.ascontiguousarray(arrays[key]) for key in self._keys]
        self._set_sources(block)
        self._insert(step, False, 1, False)
        self._store_stacks(block, step, starts)

    def block_of(self, arrays: Mapping[FieldKey, Array], steps: int) -> StepBlock:
        """Return steps as a slice for :meth:`append_block`."""
        return StepBlock(steps, [np.ascontiguousarray(arrays[key]) for key in self._keys])

    def append_block(self, block: StepBlock, first: int, most: int, step: int, check: bool) -> int:
        """Store steps of a slice, up to the first that :meth:`append` would leave to the slow path.

        Args:
            block: the slice.
            first: position in it of the first step to store.
            most: maximum number of steps to store.
            step: number of that first step.
            check: refuse NaN and infinity.

        Returns:
            Number of stored steps.
        """
        self._set_sources(block.arrays)
        self.addresses.sources += first * self.addresses.step_bytes
        return self._insert_next(step, check, min(most, block.steps - first))

    def _append_by_python(self, sample: Sample, step: int, check: bool) -> bool:
        """Append as :meth:`append`, for arrays of any type, and tensors."""
        try:
            leaves, arrays = self._pick_leaves(sample), self._pick_arrays(sample)
        except (KeyError, TypeError, SampleError):
            return False
        if any(
            array.dtype != dtype or array.shape != shape
            for array, (dtype, shape) in zip(arrays, self._expected, strict=True)
        ):
            return False
        arrays = tuple(map(np.ascontiguousarray, arrays))
        self._set_sources(arrays)
        if not self._insert_next(step, check, 1):
            return False
        if self._left_to_python == COMPILED_AFTER_STEPS and _COMPILED_FOR:
            self._compile(leaves, arrays, for_new_types=False)
        self._left_to_python -= 1
        if self._left_to_python == 0:
            self._left_to_python = COMPILED_AFTER_STEPS
            self._compile(leaves, arrays, for_new_types=True)
        return True

    def _compile(self, leaves: tuple[Any, ...], arrays: tuple[Array, ...], for_new_types: bool) -> None:
        """Compile the fast path for samples of these types, if their arrays can be read by address.

        Args:
            leaves: leaves of the sample.
            arrays: the arrays stored for them.
            for_new_types: whether to compile for new types; otherwise only what was compiled before is used.
        """
        pick = self._pick_leaves
        if not all(type(leaf) is np.ndarray for leaf in leaves):
            pick, leaves = self._pick_arrays, arrays
        if not all(leaf.flags.c_contiguous and leaf.flags.aligned for leaf in leaves):
            return
        if halves := [position for position, leaf in enumerate(leaves) if leaf.dtype == np.float16]:
            pick = _half_viewer(pick, halves)
            leaves = tuple(leaf.view(np.int16) if leaf.dtype == np.float16 else leaf for leaf in leaves)
        try:
            array_types = numba.typeof(leaves)  # type: ignore[no-untyped-call]
        except (NumbaError, ValueError):
            # A dtype that numba does not support.
            return
        types = bool(self._stacks), array_types
        if for_new_types or types in _COMPILED_FOR:
            compile_for = kernel.compiled_reader if self._stacks else kernel.compiled_append
            self._pick, self._compiled = pick, compile_for(array_types)
            _COMPILED_FOR.add(types)

    def _set_sources(self, arrays: Sequence[Array]) -> None:
        """Set the addresses of arrays of the right shapes and dtypes; the caller keeps the arrays alive."""
        self.addresses.sources[:] = [data_address(array) for array in arrays]

    def _insert(self, step: int, check: bool, steps: int, continues: bool) -> int:
        return self._insert_by(
            lambda context, stored: kernel.insert_steps(
                context, step + stored, check, steps - stored, continues or stored > 0
            ),
            steps,
        )

    def _insert_next(self, step: int, check: bool, steps: int) -> int:
        """Insert steps from the source arrays, up to the first that the slow path must validate."""
        if not self._stacks:
            return self._insert(step, check, steps, True)
        return self._insert_by(
            lambda context, stored: insert_steps_with_stacks(
                context, self._stack_table(), step + stored, check, steps - stored
            ),
            steps,
        )

    def _insert_by(self, insert: Callable[[int, int], int], steps: int) -> int:
        """Insert by a function of the context's address and the number stored; grow the side table as needed."""
        stored = 0
        while True:
            addresses = self.addresses
            stored += insert(addresses.context_address, stored)
            status = int(addresses.context["status"][0])
            if stored == steps or status >= 0:
                return stored
            sources = addresses.sources
            self._finals.reserve(-status)
            # Growing has replaced the table of addresses.
            self.addresses.sources[:] = sources

    def _stack_table(self) -> NDArray[np.void]:
        """Return the addresses of stacked columns, made again when side tables have grown and moved."""
        if self._stacks_of is not self.addresses:
            rows = [
                (
                    *column.addresses(),
                    source,
                    column.data.dtype.itemsize if must_be_finite(key, column.data.dtype) else 0,
                    data_address(self._finals.values(text(key))),
                )
                for key, column, source in self._stacks
            ]
            self._table, self._stacks_of = np.array(rows, STACK), self.addresses
        return self._table

    def _store_stacks(self, arrays: Sequence[Array], step: int, starts: NDArray[np.bool_]) -> None:
        rows = len(self._finals.numbers)
        slot, following = step % rows, (step + 1) % rows
        for _, column, source in self._stacks:
            column.insert(slot, following, arrays[source], arrays[source + 1], starts)
        if self._stacks and self._ended.any():
            envs = np.flatnonzero(self._ended)
            entries = self._finals.numbers[slot, envs] % self._finals.capacity
            for key, column, _ in self._stacks:
                self._finals.values(text(key))[entries] = column.bytes_in(following, envs)


def _leaf_picker(keys: Sequence[FieldKey], leaf_counts: Mapping[str, int]) -> Callable[[Sample], tuple[Any, ...]]:
    """Return a function that extracts the leaves of a sample; it raises KeyError if they are not those of the layout.

    Args:
        keys: of the leaves.
        leaf_counts: number of leaves of each dict field.
    """
    # itemgetter needs a key; without a layout, the function is never called.
    pick_fields = itemgetter(*([key[0] for key in keys] or [""]))
    if not leaf_counts:
        return pick_fields

    def pick_leaves(sample: Sample) -> tuple[Any, ...]:
        for field, count in leaf_counts.items():
            if not isinstance(sample[field], Mapping) or len(sample[field]) != count:
                raise KeyError(field)
        values = pick_fields(sample)
        return tuple(value[key[1]] if len(key) > 1 else value for value, key in zip(values, keys, strict=True))

    return pick_leaves


def _half_viewer(
    pick: Callable[[Sample], tuple[Any, ...]], halves: Sequence[int]
) -> Callable[[Sample], tuple[Any, ...]]:
    """Return a function that extracts leaves, float16 ones as int16 views, because numba has no half precision."""

    def pick_views(sample: Sample) -> tuple[Any, ...]:
        leaves = list(pick(sample))
        for position in halves:
            leaf = leaves[position]
            if type(leaf) is not np.ndarray or leaf.dtype != np.float16:
                raise TypeError
            leaves[position] = leaf.view(np.int16)
        return tuple(leaves)

    return pick_views


def _array_picker(
    pick_leaves: Callable[[Sample], tuple[Any, ...]], keys: Sequence[FieldKey]
) -> Callable[[Sample], tuple[Array, ...]]:
    """Return a function that extracts the leaves of a sample as arrays; SampleError where one cannot be an array."""

    def pick_arrays(sample: Sample) -> tuple[Array, ...]:
        leaves = pick_leaves(sample)
        return tuple(np.asarray(as_array(leaf, key, "")) for leaf, key in zip(leaves, keys, strict=True))

    return pick_arrays
