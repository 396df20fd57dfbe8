"""Mellowmax, a soft maximum that is a non-expansion, and its maximum-entropy policy."""

import math
from typing import Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions.discrete import RULED_OUT, Categorical

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


class MellowmaxCategorical(Categorical):
    """The maximum-entropy policy whose expected preference is the mellowmax of the preferences of allowed actions.

    Args:
        preferences: (B, k).
        omega: as of :func:`mellowmax`.
        allowed: (B, k) bool; None for all.
    """

    def __init__(self, preferences: Tensor, omega: float, allowed: Tensor | None = None) -> None:
        self._preferences, self._omega, self._allowed = preferences, omega, allowed
        super().__init__(mellowmax_logits(preferences, omega, allowed))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self._preferences.detach(), self._omega, self._allowed)

    def allowing(self, allowed: Tensor) -> Self:
        """Return the policy of the allowed actions, (B, k) bool, by whose preferences alone it is determined."""
        return type(self)(self._preferences, self._omega, allowed)


def mellowmax_logits(values: Tensor, omega: float, allowed: Tensor | None = None) -> Tensor:
    """Return the logits (..., n) of the maximum-entropy policy whose expected value is the mellowmax.

    It is a softmax of ``beta * values`` (section 5 of the paper). The expectation rises with beta, from the mean at 0,
    and is not below the mellowmax at omega, since ``log(mean(exp(omega * values)))`` is convex in omega and 0 at 0. So
    beta lies between 0 and omega, and is found by a fixed number of bisections, which needs no device synchronisation.
    Its gradient follows from the implicit function theorem.

    Args:
        values: (..., n).
        omega: as of :func:`mellowmax`.
        allowed: (..., n) bool, with at least one action in each row, the others being ruled out; None for all.
    """
    if allowed is None:
        values, ruled_out = values - values.max(-1, keepdim=True).values.detach(), None
        expectation = mellowmax(values, omega)
    else:
        best = values.masked_fill(~allowed, RULED_OUT).max(-1, keepdim=True).values.detach()
        # Any finite value would do: its probability is 0.
        values, ruled_out = (values - best).masked_fill(~allowed, 0.0), torch.where(allowed, 0.0, RULED_OUT)
        sums = (omega * values + ruled_out).logsumexp(-1, keepdim=True)
        expectation = (sums - allowed.sum(-1, keepdim=True).log()) / omega
    with torch.no_grad():
        low = torch.zeros_like(expectation)
        width = torch.full_like(expectation, omega)
        for _ in range(_ITERATIONS):
            width = width / 2
            low = torch.where(_boltzmann(values, low + width, ruled_out) < expectation, low + width, low)
        beta = low + width / 2
        probabilities = _probabilities(values, beta, ruled_out)
        mean = (probabilities * values).sum(-1, keepdim=True)
        variance = (probabilities * (values - mean).square()).sum(-1, keepdim=True).clamp_min(_SMALLEST_VARIANCE)
    # A Newton step at the root hardly changes the value, and has the gradient of the root.
    beta = beta - (_boltzmann(values, beta, ruled_out) - expectation) / variance
    logits = beta.clamp(0, omega) * values
    return logits if ruled_out is None else logits + ruled_out


def _probabilities(values: Tensor, beta: Tensor, ruled_out: Tensor | None) -> Tensor:
    logits = beta * values
    return torch.softmax(logits if ruled_out is None else logits + ruled_out, dim=-1)


def _boltzmann(values: Tensor, beta: Tensor, ruled_out: Tensor | None) -> Tensor:
    """Return the expectation (..., 1) of values (..., n) under ``softmax(beta * values + ruled_out)``."""
    return (_probabilities(values, beta, ruled_out) * values).sum(-1, keepdim=True)
