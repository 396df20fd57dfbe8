"""Gathered rows as tensors on the device where the algorithm computes."""

from collections.abc import Mapping
from typing import Any

import torch

from storages.transition import BATCH_SIZES, Batch


def to_batch(fields: Mapping[str, Any], device: torch.device) -> Batch:
    """Tensors on ``device`` of the dtypes that the arrays have.

    The sizes of packed steps stay on the CPU, where torch wants them. The tensors share the arrays' memory where
    ``device`` is the CPU, so the arrays must be the caller's alone.
    """
    batch: Batch = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            batch[key] = to_batch(value, _CPU)
        else:
            batch[key] = torch.from_numpy(value)
    return batch if device.type == "cpu" else _on(device, batch)


def _on(device: torch.device, batch: Batch) -> Batch:
    return {
        key: _on(device, value) if isinstance(value, dict) else value if key == BATCH_SIZES else value.to(device)
        for key, value in batch.items()
    }


_CPU = torch.device("cpu")
