"""Mellowmax, a soft maximum that is a non-expansion, and its maximum-entropy policy."""

import math

import torch
from torch import Tensor

_ITERATIONS = 24
_SMALLEST_VARIANCE = 1e-12


def mellowmax(values: Tensor, omega: float) -> Tensor:
    """Return the mellowmax (..., 1) of values (..., n), between their mean and their maximum.

    Asadi and Littman, "An Alternative Softmax Operator for Reinforcement Learning" (arXiv 1612.05628), equation 1:
    ``log(mean(exp(omega * values))) / omega``.

    Args:
        values: (..., n).
        omega: greater than 0; near 0 it gives the mean, and the larger it is the closer it gives the largest value.
    """
    return ((omega * values).logsumexp(-1, keepdim=True) - math.log(values.shape[-1])) / omega


def mellowmax_logits(values: Tensor, omega: float) -> Tensor:
    """Return the logits (..., n) of the maximum-entropy policy whose expected value is the mellowmax.

    It is a softmax of ``beta * values`` (section 5 of the paper). The expectation rises with beta, from the mean at 0,
    and is not below the mellowmax at omega, since ``log(mean(exp(omega * values)))`` is convex in omega and 0 at 0. So
    beta lies between 0 and omega, and is found by a fixed number of bisections, which needs no device synchronisation.
    Its gradient follows from the implicit function theorem.

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
    # A Newton step at the root hardly changes the value, and has the gradient of the root.
    beta = beta - (_boltzmann(values, beta) - expectation) / variance
    return beta.clamp(0, omega) * values


def _boltzmann(values: Tensor, beta: Tensor) -> Tensor:
    """Return the expectation (..., 1) of values (..., n) under ``softmax(beta * values)``."""
    return (torch.softmax(beta * values, dim=-1) * values).sum(-1, keepdim=True)
