"""Slices: the steps that collectors send to the learner's process."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.scheme.collector import Episode
from storages.sharded.compact_steps import Compact
from storages.storage import Storage

Arrays: TypeAlias = Mapping[str, NDArray[Any] | Mapping[str, NDArray[Any]]]
"""Fields (steps, E, ...), as :meth:`Storage.insert_data_slice` takes them."""


class Slice(NamedTuple):
    """Consecutive steps of one collector, made with the same weights."""

    data: Arrays
    worker: int
    """Index of the collector."""
    version: int
    """Version of the weights: number of update phases made before they were sent."""
    transitions: int
    """Number of transitions: steps * E, less the skipped steps."""
    episodes: list[Episode]
    """The environments' own episodes that ended."""
    episodes_ended: int
    """Number of episodes that ended, as stored."""
    shaped_returns: list[float]
    """Returns of episodes in stored rewards, where those may differ from the environments' own."""

    def __reduce__(self) -> tuple[type["Slice"], tuple[Any, ...]]:
        """Have the slice pickled with each observation once."""
        return Slice, (Compact(self.data), *self[1:])

    def state_dict(self) -> dict[str, Any]:
        """Return the slice as tensors and plain data."""
        data = {
            key: {name: _tensor(leaf) for name, leaf in field.items()} if isinstance(field, Mapping) else _tensor(field)
            for key, field in self.data.items()
        }
        return self._asdict() | {"data": data, "episodes": [episode.state_dict() for episode in self.episodes]}


def slice_from(state: Mapping[str, Any]) -> Slice:
    """Return the slice of a state returned by :meth:`Slice.state_dict`."""
    episodes = [Episode(*episode) for episode in state["episodes"]]
    return Slice(**{**state, "data": as_arrays(state["data"]), "episodes": episodes})


def arrays_of(storage: Storage, steps: int) -> Arrays:
    """Return the oldest steps of a storage on the CPU, as arrays."""
    return as_arrays(storage.get_data_slice(0, steps))


def as_arrays(fields: Mapping[str, Any]) -> Arrays:
    """Return tensors (steps, E, ...) as arrays that share their memory."""
    return {
        key: {name: leaf.numpy() for name, leaf in field.items()} if isinstance(field, Mapping) else field.numpy()
        for key, field in fields.items()
    }


def side_by_side(slices: Sequence[Arrays]) -> Arrays:
    """Concatenate slices of equal length along the environment axis."""
    if len(slices) == 1:
        return slices[0]
    joined: dict[str, Any] = {}
    for key, first in slices[0].items():
        parts: list[Any] = [fields[key] for fields in slices]
        if isinstance(first, Mapping):
            joined[key] = {name: np.concatenate([part[name] for part in parts], axis=1) for name in first}
        else:
            joined[key] = np.concatenate(parts, axis=1)
    return joined


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    # Arrays from the object store are read-only, which tensors do not support.
    return torch.from_numpy(array.copy())
