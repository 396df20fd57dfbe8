"""Normal distributions of continuous actions."""

import math
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution, empty_samples

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_REACH, _NODES = 5.5, 64  # in standard deviations; points of the trapezoidal rule, which is exact for narrow normals


class DiagonalGaussian(Distribution):
    """Independent Gaussians.

    Args:
        mean: (B, *action).
        log_std: broadcasts against ``mean``.
    """

    has_rsample = True

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.expand_as(mean)

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation, (B, *action) each."""
        return self.mean, self.log_std

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) without a gradient."""
        noise = empty_samples(self.mean, n).normal_(generator=generator)
        return torch.addcmul(self.mean.detach(), self.log_std.detach().exp(), noise)

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) with gradients."""
        noise = empty_samples(self.mean, n).normal_(generator=generator)
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw (B, *action) and compute its log density (B, 1), both with gradients."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        action = torch.addcmul(self.mean, self.log_std.exp(), noise)
        return action, self._sum(log_density(noise, self.log_std))

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        standardised = (action - self.mean) * (-self.log_std).exp()
        return self._sum(log_density(standardised, self.log_std))

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        return self._sum(self.log_std + 0.5 + LOG_SQRT_2PI)

    def mode(self) -> Tensor:
        """The mean, (B, *action)."""
        return self.mean

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        return self._sum(kl_of_normals(self.mean, self.log_std, other.mean, other.log_std))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.mean.detach(), self.log_std.detach())

    def _sum(self, per_number: Tensor) -> Tensor:
        return per_number.flatten(1 - self.mean.ndim).sum(-1, keepdim=True)


class SquashedGaussian(Distribution):
    """Independent Gaussians squashed into (-1, 1) by a tanh; Haarnoja et al., arXiv 1812.05905, appendix C.

    Args:
        normal_mean: (B, A), before the tanh.
        log_std: (B, A), before the tanh.
    """

    has_rsample = True

    def __init__(self, normal_mean: Tensor, log_std: Tensor) -> None:
        self.normal_mean = normal_mean
        self.log_std = log_std

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the standard deviation before the tanh, (B, A) each."""
        return self.normal_mean, self.log_std

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, A) or (n, B, A) in (-1, 1) without a gradient."""
        with torch.no_grad():
            return self.rsample(generator, n)

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, A) or (n, B, A) in (-1, 1) with gradients."""
        noise = empty_samples(self.normal_mean, n).normal_(generator=generator)
        return torch.tanh(torch.addcmul(self.normal_mean, self.log_std.exp(), noise))

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw (B, A) in (-1, 1) and compute its log density (B, 1), both with gradients."""
        noise = torch.empty_like(self.normal_mean).normal_(generator=generator)
        unsquashed = torch.addcmul(self.normal_mean, self.log_std.exp(), noise)
        # The noise is the standardised action: no division needed.
        log_prob = log_density(noise, self.log_std) - _log_slope_of_tanh(unsquashed)
        return torch.tanh(unsquashed), log_prob.sum(-1, keepdim=True)

    def sample_with_score(self, generator: torch.Generator, n: int | None = None) -> tuple[Tensor, Tensor]:
        """Draw (B, A) or (n, B, A) without gradients, and their log density, exact also where they round to a bound."""
        noise = empty_samples(self.normal_mean, n).normal_(generator=generator)
        with torch.no_grad():
            unsquashed = torch.addcmul(self.normal_mean, self.log_std.exp(), noise)
        return torch.tanh(unsquashed), self._log_density(unsquashed)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, A) in (-1, 1), (n, B, 1) of actions (n, B, A)."""
        return self._log_density(torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6)))

    def _log_density(self, unsquashed: Tensor) -> Tensor:
        standardised = (unsquashed - self.normal_mean) * (-self.log_std).exp()
        log_prob = log_density(standardised, self.log_std) - _log_slope_of_tanh(unsquashed)
        return log_prob.sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1): that of the Gaussians plus the mean log slope of the tanh, by quadrature to 1e-3."""
        nodes = torch.linspace(-_REACH, _REACH, _NODES, dtype=self.log_std.dtype, device=self.log_std.device)
        weights = torch.softmax(-0.5 * nodes.square(), dim=0)
        unsquashed = self.normal_mean.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes
        log_slope = (weights * _log_slope_of_tanh(unsquashed)).sum(-1)
        return (self.log_std + 0.5 + LOG_SQRT_2PI + log_slope).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        """The squashed mean of the Gaussians, (B, A)."""
        return torch.tanh(self.normal_mean)

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1); tanh, a bijection, does not change it."""
        per_number = kl_of_normals(self.normal_mean, self.log_std, other.normal_mean, other.log_std)
        return per_number.sum(-1, keepdim=True)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.normal_mean.detach(), self.log_std.detach())


def log_density(standardised: Tensor, log_std: Tensor) -> Tensor:
    """Log density of each number under its Gaussian."""
    return -0.5 * standardised.square() - log_std - LOG_SQRT_2PI


def kl_of_normals(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """Kullback-Leibler divergence of each Gaussian from the other one."""
    log_ratio = log_std - other_log_std
    distance = (mean - other_mean) * (-other_log_std).exp()
    # expm1 keeps the digits of a divergence close to 0.
    return 0.5 * ((2 * log_ratio).expm1() + distance.square()) - log_ratio


def _log_slope_of_tanh(unsquashed: Tensor) -> Tensor:
    """log(1 - tanh(x)**2), written so that it does not underflow for large x."""
    return 2 * (math.log(2) - unsquashed - F.softplus(-2 * unsquashed))
