"""Mellowmax: a soft maximum that is a non-expansion, and the policy that has it for its expectation."""

import math

import torch
from torch import Tensor

_ITERATIONS = 24
_SMALLEST_VARIANCE = 1e-12


def mellowmax(values: Tensor, omega: float) -> Tensor:
    """(..., 1): the soft maximum of values (..., n), between their mean and the largest of them.

    Asadi and Littman, "An Alternative Softmax Operator for Reinforcement Learning" (arXiv 1612.05628), equation 1:
    ``log(mean(exp(omega * values))) / omega``.

    Args:
        values: (..., n).
        omega: greater than 0; near 0 it gives the mean, and the larger it is the closer it gives the largest value.
    """
    return ((omega * values).logsumexp(-1, keepdim=True) - math.log(values.shape[-1])) / omega


def mellowmax_logits(values: Tensor, omega: float) -> Tensor:
    """(..., n): logits of the policy of the largest entropy that has the mellowmax of values for its expectation.

    It is a softmax of ``beta * values`` (section 5 of the paper). The expectation rises with beta, from the mean at 0,
    and is not below the mellowmax at omega, since ``log(mean(exp(omega * values)))`` is convex in omega and 0 at 0. So
    beta lies between 0 and omega, where it is bisected as often for all values, so that no device is waited for. Its
    gradient is that of the implicit function.

    Args:
        values: (..., n).
        omega: as of :func:`mellowmax`.
    """
    values = values - values.max(-1, keepdim=True).values.detach()
    expectation = mellowmax(values, omega)
    with torch.no_grad():
        low = torch.zeros_like(expectation)
        width = torch.full_like(expectation, omega)
        for _ in range(_ITERATIONS):
            width = width / 2
            low = torch.where(_boltzmann(values, low + width) < expectation, low + width, low)
        beta = low + width / 2
        probabilities = torch.softmax(beta * values, dim=-1)
        mean = (probabilities * values).sum(-1, keepdim=True)
        variance = (probabilities * (values - mean).square()).sum(-1, keepdim=True).clamp_min(_SMALLEST_VARIANCE)
    # A step of Newton's method from the root: its value hardly moves, and its gradient is the root's.
    beta = beta - (_boltzmann(values, beta) - expectation) / variance
    return beta.clamp(0, omega) * values


def _boltzmann(values: Tensor, beta: Tensor) -> Tensor:
    """(..., 1): the expectation of values (..., n) drawn by ``softmax(beta * values)``."""
    return (torch.softmax(beta * values, dim=-1) * values).sum(-1, keepdim=True)
