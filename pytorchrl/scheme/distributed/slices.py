"""What collectors send the learner's process: steps of their environments, side by side in arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.scheme.collector import Episode
from storages.storage import Storage

Arrays: TypeAlias = Mapping[str, NDArray[Any] | Mapping[str, NDArray[Any]]]
"""Fields (steps, E, ...), as :meth:`Storage.insert_data_slice` takes them."""


class Slice(NamedTuple):
    """What one collector did with the same weights."""

    data: Arrays
    worker: int
    """Its number."""
    version: int
    """Of its weights: update phases made before they were taken."""
    transitions: int
    """How many there are; fewer than steps of environments where these skip some."""
    episodes: list[Episode]
    """The environments' own episodes that ended."""
    episodes_ended: int
    """How many ended as the storage has them."""
    shaped_returns: list[float]
    """Returns of the episodes as the storage has them, where those may differ from the environments' own."""

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain data."""
        data = {
            key: {name: _tensor(leaf) for name, leaf in field.items()} if isinstance(field, Mapping) else _tensor(field)
            for key, field in self.data.items()
        }
        return self._asdict() | {"data": data, "episodes": [episode.state_dict() for episode in self.episodes]}


def slice_from(state: Mapping[str, Any]) -> Slice:
    """The slice of which ``Slice.state_dict`` made a state."""
    episodes = [Episode(*episode) for episode in state["episodes"]]
    return Slice(**{**state, "data": as_arrays(state["data"]), "episodes": episodes})


def arrays_of(storage: Storage, steps: int) -> Arrays:
    """The oldest steps of a storage whose batches are on the CPU."""
    return as_arrays(storage.get_data_slice(0, steps))


def as_arrays(fields: Mapping[str, Any]) -> Arrays:
    """Tensors (steps, E, ...) as arrays that share their memory."""
    return {
        key: {name: leaf.numpy() for name, leaf in field.items()} if isinstance(field, Mapping) else field.numpy()
        for key, field in fields.items()
    }


def side_by_side(slices: Sequence[Arrays]) -> Arrays:
    """Slices of as many steps as one: their environments follow each other in each step."""
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
    # What came through the object store cannot be written to, which tensors do not know.
    return torch.from_numpy(array.copy())
