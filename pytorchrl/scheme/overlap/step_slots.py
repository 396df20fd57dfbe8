"""A ring of environment steps in shared memory, between collector processes and the storage."""

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
    """Return the layout of a step's arrays (E, ...)."""
    return {path: ArrayKind(array.dtype.str, array.shape[1:]) for path, array in arrays.items()}


def arrays_of(sample: Sample) -> dict[FieldKey, NDArray[Any]]:
    """Return the arrays of a step, by path."""
    return {path: as_array(leaf, path, "Overlapped") for path, leaf in leaves(sample)}


class StepSlots:
    """Ring buffer of steps of all environments in shared memory.

    Args:
        layout: of a step.
        slots: capacity in steps.
        num_envs: E, the number of environments.
        workers: number of collector processes.
        memory: the shared memory.
        is_maker: whether this process allocates the memory, which the others map.
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
        """Return the slot of a step, counted from 0."""
        return position % self._slots

    def step(self, position: int) -> dict[str, Any]:
        """Return a step as a sample (E, ...), whose arrays a later step overwrites."""
        slot = self.slot(position)
        return nest({path: array[slot] for path, array in self._arrays.items()})

    def write(self, position: int, rows: slice, arrays: Mapping[FieldKey, NDArray[Any]]) -> None:
        """Write a step of some environments."""
        slot = self.slot(position)
        for path, array in arrays.items():
            # The dtype of an info may differ from step to step.
            np.copyto(self._arrays[path][slot, rows], array, casting="same_kind")

    def read(self, positions: Sequence[int], rows: slice) -> list[NDArray[Any]]:
        """Return copies (N, E, ...) of all fields of N steps, of some environments."""
        slots = [self.slot(position) for position in positions]
        return [array[slots, rows] for array in self._arrays.values()]
