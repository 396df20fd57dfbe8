"""Gathered rows as tensors on the device where the algorithm computes."""

from collections.abc import Mapping
from typing import Any

import torch

from storages.transition import Batch


def to_batch(fields: Mapping[str, Any], device: torch.device) -> Batch:
    """Tensors on ``device`` of the dtypes that the arrays have.

    The tensors share the arrays' memory where ``device`` is the CPU, so the arrays must be the caller's alone.
    """
    batch: Batch = {}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            batch[key] = {name: _to_device(torch.from_numpy(leaf), device) for name, leaf in value.items()}
        else:
            batch[key] = _to_device(torch.from_numpy(value), device)
    return batch


def _to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor if device.type == "cpu" else tensor.to(device)
