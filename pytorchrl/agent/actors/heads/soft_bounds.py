"""Bounds of what layers make, through which gradients pass."""

import torch.nn.functional as F
from torch import Tensor


def above(bound: float | None, numbers: Tensor) -> Tensor:
    """Numbers that stay above a bound, of any shape; unchanged where it is None.

    Smoothly, since what a clamp cuts off has no gradient that could raise it again.
    """
    return numbers if bound is None else bound + F.softplus(numbers - bound)
