"""The hyperbolic tangent of features, several times as fast on a CPU as torch's.

torch's own is exact to half a unit in the last place, and takes longer than the product of matrices before it: 0.43 of
1.02 ms for 2,048 rows of 64 features and their gradients. This one divides two polynomials, which a compiler computes
for several numbers at a time, and takes 0.07 ms. It is exact to 4e-7 of the value, a few units in the last place.
"""

from typing import Any

import numpy as np
import torch
from numba.np.numpy_support import carray
from torch import Tensor

from pytorchrl.agent.actors.layers.quick_module import is_recorded
from storages.core.kernels.compilation import parallel_kernel
from storages.core.kernels.memory import pointer

# The quotient's relative error, 2.1e-8 at most for inputs up to 9, was fitted to be as small as that of any such one.
# Beyond, the tangent rounds to 1.
_LARGEST_INPUT = np.float32(9.0)
_ONE = np.float32(1.0)
_P1, _P2, _P3, _P4 = map(np.float32, (0.13381013, 0.0034955740, 2.0608852e-05, 1.3354352e-08))
_Q1, _Q2, _Q3, _Q4 = map(np.float32, (0.46714330, 0.025876928, 0.00032856117, 7.7764292e-07))

_LEAST_NUMBERS, _LEAST_NUMBERS_WITH_GRADIENT = 1_024, 16_384
"""Of features; for fewer, torch's call is the shorter one."""
_MOST_THREADS = 4
"""torch shares the work among its threads, one of which takes six times as long as the kernel."""


def tanh_(features: Tensor) -> Tensor:
    """Take the hyperbolic tangent in place, differentiable any number of times."""
    if is_recorded() or features.numel() < _LEAST_NUMBERS or not _is_plain(features):
        return torch.tanh_(features)
    if not (features.requires_grad and torch.is_grad_enabled()):
        _compute_tanh(features.data_ptr(), features.numel())
        return features
    if features.numel() < _LEAST_NUMBERS_WITH_GRADIENT:
        return torch.tanh_(features)
    computed: Tensor = _Tanh.apply(features)  # type: ignore[no-untyped-call]
    return computed


def _is_plain(features: Tensor) -> bool:
    """Whether there are numbers of the kernel's kind at an address."""
    if not (
        type(features) is Tensor
        and features.dtype is torch.float32
        and features.is_cpu
        and features.is_contiguous()
        and torch.get_num_threads() <= _MOST_THREADS
    ):
        return False
    try:
        features.data_ptr()
    except RuntimeError:  # what torch.func transforms
        return False
    return True


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:
        _compute_tanh(features.data_ptr(), features.numel())
        ctx.mark_dirty(features)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient: Tensor = torch.ops.aten.tanh_backward(gradients[0], *ctx.saved_tensors)
        return gradient


@parallel_kernel
def _compute_tanh(address: int, count: int) -> None:
    """Replace float32 numbers from an address on by their hyperbolic tangents."""
    features = carray(pointer(address), count, np.float32)
    for position in range(count):
        x = features[position]
        # Written so that NaN stays NaN.
        x = -_LARGEST_INPUT if x < -_LARGEST_INPUT else (_LARGEST_INPUT if x > _LARGEST_INPUT else x)
        square = x * x
        above = (((_P4 * square + _P3) * square + _P2) * square + _P1) * square + _ONE
        below = (((_Q4 * square + _Q3) * square + _Q2) * square + _Q1) * square + _ONE
        tangent = np.divide(x * above, below)  # without the branch that `/` has for zero
        features[position] = -_ONE if tangent < -_ONE else (_ONE if tangent > _ONE else tangent)
