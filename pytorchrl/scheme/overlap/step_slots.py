"""Steps of the environments in shared memory, on their way from those who collect to the storage."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytorchrl.scheme.overlap.shared_arrays import ArrayKind, SharedArrays
from storages.core.ring.layout import FieldKey, as_array, leaves, nest
from storages.transition import Sample

StepLayout: TypeAlias = Mapping[FieldKey, ArrayKind]
"""Dtype of each field of a step, and its shape for one environment."""


def layout_of(arrays: Mapping[FieldKey, NDArray[Any]]) -> StepLayout:
    """The layout of a step's arrays (E, ...)."""
    return {path: ArrayKind(array.dtype.str, array.shape[1:]) for path, array in arrays.items()}


def arrays_of(sample: Sample) -> dict[FieldKey, NDArray[Any]]:
    """The arrays of a step, by path."""
    return {path: as_array(leaf, path, "Overlapped") for path, leaf in leaves(sample)}


class StepSlots:
    """Room for a number of steps, each of all environments; the next one takes the place of the oldest.

    Args:
        layout: of a step.
        slots: how many steps there is room for.
        num_envs: E, the number of environments.
        workers: how many processes collect.
        memory: where it is.
        is_maker: whether this process takes the memory, which others map.
    """

    def __init__(
        self, layout: StepLayout, slots: int, num_envs: int, workers: int, memory: SharedArrays, *, is_maker: bool
    ) -> None:
        self.layout = layout
        kinds = [ArrayKind(kind.dtype, (slots, num_envs, *kind.shape)) for kind in layout.values()]
        kinds.append(ArrayKind("int64", (slots, workers)))
        arrays = memory.make(kinds) if is_maker else memory.map(kinds)
        self._slots = slots
        self._arrays = dict(zip(layout, arrays, strict=False))
        self.finished: NDArray[np.int64] = arrays[-1]
        """(slots, workers): how many episodes ended with each step."""

    def slot(self, position: int) -> int:
        """Where a step is, counted from 0."""
        return position % self._slots

    def step(self, position: int) -> dict[str, Any]:
        """A step as a sample (E, ...), whose arrays are overwritten by a later one."""
        slot = self.slot(position)
        return nest({path: array[slot] for path, array in self._arrays.items()})

    def write(self, position: int, rows: slice, arrays: Mapping[FieldKey, NDArray[Any]]) -> None:
        """Set the part of a step that is of some environments."""
        slot = self.slot(position)
        for path, array in arrays.items():
            # Numbers of an info may have another dtype in each step.
            np.copyto(self._arrays[path][slot, rows], array, casting="same_kind")

    def read(self, positions: Sequence[int], rows: slice) -> list[NDArray[Any]]:
        """Copies (N, E, ...) of all fields of steps, of some environments."""
        slots = [self.slot(position) for position in positions]
        return [array[slots, rows] for array in self._arrays.values()]
