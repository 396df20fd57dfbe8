"""Slices of steps that workers exchange: copies of stored steps, and their fields and errors."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.device.transfer import to_batch
from storages.core.ring.layout import FieldKey, as_array
from storages.core.ring.ring import Ring
from storages.transition import DONE, ERRORS, Array, Batch, Leaf


def steps_of(ring: Ring, start: int, end: int, device: torch.device) -> Batch:
    """Copy the steps [``start``, ``end``), counted from the oldest, as tensors (steps, E, ...).

    Raises:
        IndexError: the steps are not all stored.
    """
    if not 0 <= start <= end <= ring.live_steps:
        raise IndexError(f"{ring.owner}: steps {start} to {end} are out of range, with {ring.live_steps} steps stored")
    if not ring.layout:
        return {}
    first = ring.oldest + start
    batch = to_batch(ring.gather(np.arange(first * ring.envs, (first + end - start) * ring.envs)), device)
    shape = (end - start, ring.envs)
    return {
        key: {name: leaf.unflatten(0, shape) for name, leaf in value.items()}
        if isinstance(value, dict)
        else value.unflatten(0, shape)
        for key, value in batch.items()
    }


class StoredFields(Mapping[str, Any]):
    """The fields of the stored steps, oldest first, as arrays (steps, E, ...), or dicts of such.

    Each access copies a field, and the copies refuse to be written to, because stored steps depend on each other:
    ``insert_transition`` and ``insert_data_slice`` add steps, ``insert_single_tensor_slice`` overwrites a field.

    Args:
        ring: the ring buffer of the steps.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def __getitem__(self, key: str) -> Any:
        """Return a copy of a field.

        Raises:
            KeyError: there is no such field.
        """
        if key not in self._names():
            raise KeyError(f"{self._ring.owner}: there is no field {key!r}, only {', '.join(self) or 'none yet'}")
        ring = self._ring
        first, end = ring.oldest * ring.envs, ring.steps * ring.envs
        field = ring.gather(np.arange(first, end), {key})[key]
        if isinstance(field, dict):
            return {name: self._shaped(part) for name, part in field.items()}
        return self._shaped(field)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"

    def _names(self) -> list[str]:
        paths = (*self._ring.layout, *self._ring.columns.computed)
        return list(dict.fromkeys(path[0] for path in paths))

    def _shaped(self, values: Array) -> Array:
        shaped = values.reshape(self._ring.live_steps, self._ring.envs, *values.shape[1:])
        shaped.flags.writeable = False
        return shaped


def append_values(tensor_storage: MutableMapping[str, Any], tensor_key: str, tensor_values: Leaf) -> int:
    """Append the values of one field to a dict of fields, and return how many steps these are.

    ``insert_data_slice`` stores such a dict, once all fields are there. The parameters are those of PyTorchRL's
    ``insert_single_tensor_slice``.

    Args:
        tensor_storage: the dict, or that of a dict observation in it; changed.
        tensor_key: name of the field.
        tensor_values: an array or a tensor (steps, E, ...); copied.

    Raises:
        TypeError: ``tensor_storage`` is no dict that can be changed, such as ``data`` of a storage; or the values are
            no array.
        ValueError: the shape of a step differs from that of the field's values so far; nothing was appended.
    """
    if not isinstance(tensor_storage, MutableMapping):
        raise TypeError(
            f"tensor_storage must be a dict to append to, got {type(tensor_storage).__name__}; insert_data_slice("
            f"new_data) stores steps of all fields"
        )
    if not isinstance(tensor_values, np.ndarray | torch.Tensor) or tensor_values.ndim == 0:
        raise TypeError(f"{tensor_key}: values must be an array or a tensor (steps, E, ...), got {tensor_values!r}")
    present = tensor_storage.get(tensor_key)
    if present is None:
        copied = tensor_values.copy() if isinstance(tensor_values, np.ndarray) else tensor_values.clone()
        tensor_storage[tensor_key] = copied
        return len(tensor_values)
    if tuple(present.shape[1:]) != tuple(tensor_values.shape[1:]):
        raise ValueError(
            f"{tensor_key}: values of a step have shape {tuple(present.shape[1:])} so far, got "
            f"{tuple(tensor_values.shape[1:])}; nothing was appended"
        )
    if isinstance(present, torch.Tensor):
        tensor_storage[tensor_key] = torch.cat([present, torch.as_tensor(tensor_values, device=present.device)])
    else:
        added = tensor_values.numpy(force=True) if isinstance(tensor_values, torch.Tensor) else tensor_values
        tensor_storage[tensor_key] = np.concatenate([present, added])
    return len(tensor_values)


def slice_errors(data: Mapping[str, Any], arrays: Mapping[FieldKey, Array], owner: str) -> NDArray[np.floating] | None:
    """Return the TD errors (N,) of a slice, one for each transition; None where it has none.

    Args:
        data: the slice.
        arrays: its fields.
        owner: the storage's name.

    Raises:
        ValueError: they are not one real number for each transition, or not finite as float32.
    """
    if ERRORS not in data:
        return None
    errors, expected = as_array(data[ERRORS], (ERRORS,), owner), arrays[(DONE,)].shape if (DONE,) in arrays else ()
    if errors.shape != expected or errors.dtype.kind not in "biuf":
        raise ValueError(
            f"{owner}: {ERRORS} of a slice must be real numbers of shape {expected}, one for each transition, got "
            f"{errors.dtype} of shape {errors.shape}; nothing was stored"
        )
    # Values beyond float32 are refused below; NumPy must not warn of them, or raise another error, before.
    with np.errstate(over="ignore"):
        of_all: NDArray[np.floating] = np.ascontiguousarray(errors, np.float32).reshape(-1)
    if not np.isfinite(of_all).all():
        raise ValueError(f"{owner}: {ERRORS} of a slice must be finite as float32; nothing was stored")
    return of_all
