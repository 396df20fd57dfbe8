"""Fully connected layers of networks that act, in one compiled call, and a faster tanh."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.ops.dispatch import are_for_kernels, is_recorded
from pytorchrl.agent.ops.layer_kernels import (
    RELU,
    TANGENT,
    apply_layers_by_columns,
    apply_layers_by_rows,
    write_tangents,
)
from pytorchrl.agent.ops.products import LINEAR_TYPES

KERNELS = {"relu": RELU, "tanh": TANGENT}
"""Activations that the kernels have."""


def hidden_layers(
    features: Tensor, layers: Sequence[nn.Module], activation: str, activated: int | None = None
) -> Tensor | None:
    """Apply linear layers, each followed by an activation, to a few rows without gradients.

    Layers and parameters are read at each call. With small matrices, torch's overhead takes longer than the products.

    Args:
        features: (N, inputs).
        layers: of any kind.
        activation: its name.
        activated: number of layers that it follows; None for all of them.

    Returns:
        (N, outputs); None where torch has to call the layers, as those with hooks, with a parametrisation or with a
        ``forward`` of their own, and for many rows.
    """
    # In tracing, even the number of rows may be symbolic.
    if activation not in KERNELS or is_recorded() or features.dim() != 2 or not are_plain(layers):
        return None
    rows, width = features.shape
    if not 0 < rows <= _MOST_COLUMNS or type(features) is not Tensor or features.dtype is not torch.float32:
        return None
    if not (features.is_cpu and features.is_contiguous()):
        return None
    weights, table = 0, []
    for layer in layers:
        weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
        if (
            not (type(weight) is type(bias) is nn.Parameter)
            or not (weight.dtype is bias.dtype is torch.float32)
            or not (weight.is_cpu and bias.is_cpu and weight.is_contiguous() and bias.is_contiguous())
            or not (weight.dim() == 2 and weight.shape[1] == width and bias.shape == weight.shape[:1])
        ):
            return None
        inputs, width = width, len(bias)
        table.append((weight.data_ptr(), bias.data_ptr(), inputs, width))
        weights += inputs * width
    by_rows = rows <= _MOST_ROWS and rows * weights <= _MOST_PRODUCTS_BY_ROWS
    by_columns = rows >= _LEAST_COLUMNS and rows * weights <= _MOST_PRODUCTS_BY_COLUMNS
    if not table or not (by_rows or by_columns):
        return None
    try:
        features_at = features.data_ptr()
    except RuntimeError:  # of torch.func
        return None
    # Allocated by NumPy, which is faster than `torch.empty`.
    outputs = torch.from_numpy(np.empty((rows, width), np.float32))
    kernel = apply_layers_by_rows if by_rows else apply_layers_by_columns
    activated = len(table) if activated is None else activated
    kernel(np.array(table), features_at, outputs.data_ptr(), rows, KERNELS[activation], activated)
    return outputs


def are_plain(layers: Iterable[nn.Module], *types: type[nn.Module]) -> bool:
    """Whether a call of each layer is the ``forward`` of its class and no more, now.

    Args:
        layers: of any kind.
        types: those whose ``forward`` is meant, by default those of linear layers.
    """
    if _has_global_hooks():
        return False
    expected = types or LINEAR_TYPES
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


def _any_global_hook() -> bool:
    """Replace torch's function where it is missing: no layer is then known to be without hooks."""
    return True


_has_global_hooks: Any = getattr(nn.modules.module, "_has_any_global_hook", _any_global_hook)
_MOST_ROWS, _MOST_PRODUCTS_BY_ROWS = 16, 72_000
_LEAST_COLUMNS, _MOST_COLUMNS, _MOST_PRODUCTS_BY_COLUMNS = 32, 64, 400_000
"""Limits beyond which torch takes less time, as measured with two layers of 32 to 256 units."""


_LEAST_NUMBERS, _LEAST_NUMBERS_WITH_GRADIENT = 1_024, 16_384
"""Numbers of elements below which torch is faster."""


def tanh_(features: Tensor) -> Tensor:
    """Apply tanh in place; differentiable any number of times."""
    # In tracing, the number of rows is a symbol.
    if is_recorded():
        return torch.tanh_(features)
    has_gradient = features.requires_grad and torch.is_grad_enabled()
    least = _LEAST_NUMBERS_WITH_GRADIENT if has_gradient else _LEAST_NUMBERS
    if features.numel() < least or not are_for_kernels(features):
        return torch.tanh_(features)
    if has_gradient:
        computed: Tensor = _Tanh.apply(features)  # type: ignore[no-untyped-call]
        return computed
    write_tangents(features.data_ptr(), features.data_ptr(), features.numel())
    return features


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        write_tangents(features.data_ptr(), features.data_ptr(), features.numel())
        ctx.mark_dirty(features)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient: Tensor = torch.ops.aten.tanh_backward(gradients[0], *ctx.saved_tensors)
        return gradient
