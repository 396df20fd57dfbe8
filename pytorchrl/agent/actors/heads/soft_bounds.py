"""Smooth lower bounds of layers' outputs."""

import torch.nn.functional as F
from torch import Tensor


def above(bound: float | None, numbers: Tensor) -> Tensor:
    """Bound numbers of any shape from below by a softplus; return them unchanged where the bound is None.

    Unlike a clamp, it has a gradient below the bound, too.
    """
    return numbers if bound is None else bound + F.softplus(numbers - bound)
