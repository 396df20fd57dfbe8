"""Fully connected layers with their activations: torch's own, or one compiled call for the few rows of acting.

Each call looks at the layers as they are then, and reads their parameters anew. Layers with hooks, a parametrisation or
a ``forward`` of their own are called as torch calls them.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.ops.dispatch import is_recorded, new_results, plain_address
from pytorchrl.agent.ops.layer_kernels import RELU, TANGENT, apply_layers_by_columns, apply_layers_by_rows
from pytorchrl.agent.ops.products import Linear
from pytorchrl.agent.ops.tanh import LEAST_NUMBERS, tanh_

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
}
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {**ACTIVATIONS, "relu": torch.relu_, "tanh": torch.tanh_}
KERNELS = {"relu": RELU, "tanh": TANGENT}
"""Activations that the kernels of acting have."""


def hidden_layers(features: Tensor, layers: Collection[nn.Module], activation: str) -> Tensor:
    """Apply layers, each followed by an activation: (N, inputs) to (N, outputs).

    Args:
        features: not changed.
        layers: of any kind, as they are at this call.
        activation: a key of :data:`ACTIVATIONS`.
    """
    if not are_plain(layers):
        for layer in layers:
            features = ACTIVATIONS[activation](layer(features))
        return features
    if torch.is_inference_mode_enabled():
        outputs = _by_kernel(features, layers, activation)
        if outputs is not None:
            return outputs
    # In place, which spares an array. A hook could keep a layer's output, and a layer of another kind return its input.
    activate = _IN_PLACE[activation]
    for layer in layers:
        features = layer(features)
        has_many = activation == "tanh" and features.numel() >= LEAST_NUMBERS
        features = tanh_(features) if has_many else activate(features)
    return features


def are_plain(layers: Iterable[nn.Module], *types: type[nn.Module]) -> bool:
    """Whether a call of each layer is the ``forward`` of its class and no more.

    Args:
        layers: as they are at this call.
        types: those expected; by default those of linear layers, of which parametrised ones are others.
    """
    if _has_global_hooks():
        return False
    expected = types or _LINEAR
    for layer in layers:
        if (
            type(layer) not in expected
            or layer._forward_hooks
            or layer._forward_pre_hooks
            or layer._backward_hooks
            or layer._backward_pre_hooks
            or "forward" in layer.__dict__
        ):
            return False
    return True


def _by_kernel(features: Tensor, layers: Collection[nn.Module], activation: str) -> Tensor | None:
    """Compute hidden layers by one compiled call, in inference mode; return None where torch has to compute them.

    With small matrices, torch's overhead takes longer than the products.
    """
    # In tracing, even the number of rows may be symbolic.
    if activation not in KERNELS or features.dim() != 2 or is_recorded():
        return None
    rows, width = features.shape
    features_at = plain_address(features)
    if not (0 < rows <= _MOST_COLUMNS) or features_at is None:
        return None
    table: list[tuple[int, int, int, int]] = []
    weights = 0
    for layer in layers:
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        if (
            not (type(weight) is type(bias) is nn.Parameter)
            or not (weight.dtype is bias.dtype is torch.float32)
            or not (weight.is_cpu and bias.is_cpu and weight.is_contiguous() and bias.is_contiguous())
            or not (weight.dim() == 2 and weight.shape[1] == width and bias.shape == weight.shape[:1])
        ):
            return None
        outputs, inputs = weight.shape
        table.append((weight.data_ptr(), bias.data_ptr(), inputs, outputs))
        weights += inputs * outputs
        width = outputs
    if rows <= _MOST_ROWS and rows * weights <= _MOST_PRODUCTS_BY_ROWS:
        kernel = apply_layers_by_rows
    elif rows >= _LEAST_COLUMNS and rows * weights <= _MOST_PRODUCTS_BY_COLUMNS:
        kernel = apply_layers_by_columns
    else:
        return None
    if not table:
        return None
    results = new_results((rows, width))
    kernel(np.array(table), features_at, results.data_ptr(), rows, KERNELS[activation])
    return results


def _any_global_hook() -> bool:
    """Stand in for torch's function where it is missing: no layer is then taken for one without hooks."""
    return True


_has_global_hooks: Any = getattr(nn.modules.module, "_has_any_global_hook", _any_global_hook)
_LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, Linear)
"""Types whose ``forward`` is a matrix product and no more."""
_MOST_ROWS, _MOST_PRODUCTS_BY_ROWS = 16, 72_000
_LEAST_COLUMNS, _MOST_COLUMNS, _MOST_PRODUCTS_BY_COLUMNS = 32, 64, 400_000
"""Limits beyond which torch takes less time, as measured with two layers of 32 to 256 units."""
