"""Conversion of a run's state to tensors and plain data, which alone are loaded again."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    set,
    torch.Tensor,
    torch.Size,
    torch.dtype,
    torch.device,
)


def as_plain_data(value: Any, where: str = "state") -> Any:
    """Return a state with Python's numbers in place of numpy's.

    Args:
        value: tensors, numbers and texts, and dicts, lists and tuples of them; not changed.
        where: its place, for errors.

    Raises:
        TypeError: something else is in it, which could be saved but not loaded; the message names its place.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        keys = [as_plain_data(key, where) for key in value]
        items = [as_plain_data(item, f"{where}[{key!r}]") for key, item in value.items()]
        return (
            value
            if _are_same(keys, value) and _are_same(items, value.values())
            else dict(zip(keys, items, strict=True))
        )
    if isinstance(value, list | tuple):
        parts = [as_plain_data(part, f"{where}[{position}]") for position, part in enumerate(value)]
        if _are_same(parts, value):
            return value
        return parts if isinstance(value, list) else tuple(parts)
    raise TypeError(
        f"{where} is {type(value).__name__}, which a checkpoint cannot hold: it consists of tensors, numbers, texts, "
        f"and dicts and lists of these; convert it in state_dict() and back in load_state_dict()"
    )


def _are_same(parts: Iterable[Any], before: Iterable[Any]) -> bool:
    return all(part is one for part, one in zip(parts, before, strict=True))
