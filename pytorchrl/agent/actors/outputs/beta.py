"""Beta distributions of bounded actions."""

import math
from typing import Self

import torch
import torch.distributions as td
from torch import Tensor

from pytorchrl.agent.actors.outputs.distribution import Distribution
from pytorchrl.agent.global_generators import global_generator


class Beta(Distribution):
    """Independent Beta distributions, stretched from (0, 1) to (-1, 1).

    Chou et al., "Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement Learning using the
    Beta Distribution" (ICML 2017), which has no mass outside of the bounds to be clipped.

    Log-densities, entropies and divergences are small differences of terms that grow with the concentrations; they are
    computed in double precision.

    Args:
        towards_high: (B, A), alpha > 0: the larger, the more actions lie close to 1.
        towards_low: (B, A), beta > 0: the larger, the more actions lie close to -1.
    """

    has_rsample = True

    def __init__(self, towards_high: Tensor, towards_low: Tensor) -> None:
        self.towards_high = towards_high
        self.towards_low = towards_low

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """Both concentrations, (B, A) each."""
        return self.towards_high, self.towards_low

    @property
    def mean(self) -> Tensor:
        """Expected action, (B, A)."""
        return (self.towards_high - self.towards_low) / (self.towards_high + self.towards_low)

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, A) or (n, B, A) in (-1, 1) without a gradient."""
        with torch.no_grad():
            return self.rsample(generator, n)

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, A) or (n, B, A) in (-1, 1), with the implicit gradients of Figurnov et al. (arXiv 1805.08498)."""
        beta = td.Beta(self.towards_high, self.towards_low, validate_args=False)
        with global_generator(generator):
            share = beta.rsample(torch.Size() if n is None else torch.Size((n,)))
        return 2 * _inside(share, torch.finfo(share.dtype).eps) - 1

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, A) in (-1, 1), (n, B, 1) of actions (n, B, A)."""
        high, low = self._in_double()
        share = _inside(0.5 + 0.5 * action.double(), torch.finfo(action.dtype).eps)
        densities = (high - 1) * share.log() + (low - 1) * (-share).log1p() - _log_beta(high, low) - math.log(2)
        return _sum(densities).to(self.towards_high.dtype)

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        high, low = self._in_double()
        excess = (high - 1) * high.digamma() + (low - 1) * low.digamma() - (high + low - 2) * (high + low).digamma()
        return _sum(_log_beta(high, low) - excess + math.log(2)).to(self.towards_high.dtype)

    def mode(self) -> Tensor:
        """Most likely actions, (B, A): a bound if a concentration is below 1, the middle if both are 1."""
        high, low = self.towards_high, self.towards_low
        total = high + low - 2
        peak = torch.where(total > 0, (high - low) / total, torch.zeros_like(total))
        # With both below 1, density is infinite at both bounds, and grows faster at that of the smaller one.
        bound = torch.where(high > low, 1.0, -1.0).to(peak.dtype)
        return torch.where((high >= 1) & (low >= 1), peak, bound)

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        (high, low), (other_high, other_low) = self._in_double(), other._in_double()
        more_high, more_low = high - other_high, low - other_low
        of_logs = (
            more_high * high.digamma() + more_low * low.digamma() - (more_high + more_low) * (high + low).digamma()
        )
        divergences = _log_beta(other_high, other_low) - _log_beta(high, low) + of_logs
        return _sum(divergences).to(self.towards_high.dtype)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.towards_high.detach(), self.towards_low.detach())

    def _in_double(self) -> tuple[Tensor, Tensor]:
        return self.towards_high.double(), self.towards_low.double()


def _inside(share: Tensor, margin: float) -> Tensor:
    """Clamp to a margin, the machine epsilon of actions, away from 0 and 1, where densities may be infinite."""
    return share.clamp(margin, 1 - margin)


def _log_beta(one: Tensor, other: Tensor) -> Tensor:
    """Logarithm of the Beta function."""
    return one.lgamma() + other.lgamma() - (one + other).lgamma()


def _sum(per_number: Tensor) -> Tensor:
    return per_number.sum(-1, keepdim=True)
