"""The conjugate gradient method, which solves linear systems by matrix-vector products."""

from collections.abc import Callable

import torch
from torch import Tensor

_TINY = 1e-30


def conjugate_gradient(matrix_times: Callable[[Tensor], Tensor], target: Tensor, iterations: int) -> Tensor:
    """Return an approximate solution (P,) of ``matrix @ solution = target``.

    Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems" (1952).

    Args:
        matrix_times: multiplies a symmetric positive definite matrix (P, P) with a vector (P,).
        target: (P,).
        iterations: at most P are needed, up to rounding errors; further ones change nothing.
    """
    solution = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    square = residual @ residual
    for _ in range(iterations):
        product = matrix_times(direction)
        step = square / (direction @ product).clamp(min=_TINY)
        solution = solution + step * direction
        residual = residual - step * product
        following = residual @ residual
        direction = residual + following / square.clamp(min=_TINY) * direction
        square = following
    return solution
