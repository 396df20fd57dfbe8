"""Many batches in one piece of memory, as they travel between processes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.transition import Batch

_ALIGNED_BYTES = 64


class Place(NamedTuple):
    """Where, from the beginning of its batch on, an array is."""

    begin: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PackedBatches:
    """Batches one after the other."""

    memory: NDArray[np.uint8]
    """(bytes,)."""
    places: tuple[tuple[dict[str, Any], int], ...]
    """Of each batch a :class:`Place` for each array, in dicts as the arrays were, and its bytes."""

    def __len__(self) -> int:
        """How many batches there are."""
        return len(self.places)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the batches, dicts of arrays, each a copy."""
        begin = 0
        for places, size in self.places:
            yield _arrays(self.memory[begin : begin + size].copy(), places)
            begin += size


def pack(batches: Sequence[Batch]) -> PackedBatches:
    """Copy batches of tensors on the CPU into one piece of memory."""
    found: list[tuple[dict[str, Any], int]] = []
    arrays = [_as_arrays(batch) for batch in batches]
    for batch in arrays:
        places = _places(batch, 0)
        # One object for all that are alike, which is pickled once.
        found.append(found[-1] if found and found[-1] == places else places)
    memory, begin = np.empty(sum(size for _, size in found), np.uint8), 0
    for batch, (places_of_batch, size) in zip(arrays, found, strict=True):
        _write(batch, places_of_batch, memory[begin : begin + size])
        begin += size
    return PackedBatches(memory, tuple(found))


def _as_arrays(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _as_arrays(value) if isinstance(value, dict) else value.numpy() for key, value in batch.items()}


def _places(arrays: Mapping[str, Any], begin: int) -> tuple[dict[str, Any], int]:
    places: dict[str, Any] = {}
    for key, value in arrays.items():
        if isinstance(value, dict):
            places[key], begin = _places(value, begin)
        else:
            places[key] = Place(begin, value.shape, value.dtype.str)
            begin += -(-value.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    return places, begin


def _write(arrays: Mapping[str, Any], places: Mapping[str, Any], memory: NDArray[np.uint8]) -> None:
    for key, place in places.items():
        if isinstance(place, Place):
            np.ndarray(place.shape, place.dtype, memory.data, place.begin)[...] = arrays[key]
        else:
            _write(arrays[key], place, memory)


def _arrays(memory: NDArray[np.uint8], places: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: np.ndarray(place.shape, place.dtype, memory.data, place.begin)
        if isinstance(place, Place)
        else _arrays(memory, place)
        for key, place in places.items()
    }
