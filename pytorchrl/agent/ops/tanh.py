"""A tanh that is several times as fast on a CPU as torch's.

torch's own is exact to half a unit in the last place, and takes longer than the matrix product before it. This one is a
quotient of two polynomials, which the compiler vectorises. Its relative error is at most 4e-7, a few units in the last
place. For 2,048 rows of 64 features it takes 0.05 instead of 0.44 ms, with the gradient 0.19 instead of 0.57: four
times in an update of PPO with 64 environments.
"""

from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.ops.dispatch import are_for_kernels, is_recorded
from pytorchrl.agent.ops.layer_kernels import write_tangents

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
