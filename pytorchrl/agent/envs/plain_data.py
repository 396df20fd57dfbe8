"""Conversion of nested data for checkpoints, which hold tensors instead of arrays: these would need unpickling."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def as_tensors(value: Any) -> Any:
    """Copy nested dicts, lists and tuples, with arrays as tensors.

    Raises:
        TypeError: it contains anything but plain data and arrays.
    """
    return _mapped(value, _as_tensor)


def as_arrays(value: Any) -> Any:
    """Copy nested dicts, lists and tuples, with tensors as arrays."""
    return _mapped(value, lambda leaf: leaf.numpy().copy() if isinstance(leaf, torch.Tensor) else leaf)


def is_generator(state: Any) -> bool:
    """Whether plain data is the state of a random generator of numpy's default kind."""
    try:
        np.random.PCG64(0).state = state
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _mapped(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_mapped(part, change) for part in value])
    return change(value)


def _as_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value, order="C"))
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"a checkpoint can hold only plain data and arrays, not the {type(value).__name__} {value!r}")
