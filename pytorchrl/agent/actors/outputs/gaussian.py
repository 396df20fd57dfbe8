"""Gaussian distributions of actions: diagonal, squashed, with state-dependent noise, and mixtures."""

import math
from abc import abstractmethod
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.discrete import Categorical
from pytorchrl.agent.actors.outputs.distribution import Distribution, Scaled, empty_samples, with_shape

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


_SMALLEST_VARIANCE = 1e-6


class StateDependentNoise(Distribution):
    """Actions ``mean + features @ (std * noise)`` with a matrix of standard normal noise.

    Drawn with a new matrix each time, they are Gaussian (Raffin et al., "Smooth Exploration for Robotic Reinforcement
    Learning", arXiv 2005.05719, equations 8 to 10). Drawn with the same one, they are a deterministic function of the
    observation, so that exploration is consistent over time.

    Args:
        mean: (B, *action), of A components.
        features: (B, F).
        log_std: (F, A), logarithms of the noise's standard deviations.
    """

    def __init__(self, mean: Tensor, features: Tensor, log_std: Tensor) -> None:
        std = log_std.exp()
        variance = features.square() @ std.square()
        # The constructor of the subclass's other base class, the distribution of the actions.
        super().__init__(mean, 0.5 * (variance + _SMALLEST_VARIANCE).log().view_as(mean))  # type: ignore[call-arg]
        self._given = mean, features, log_std

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape (B, F, A) of the noise matrices that :meth:`under` takes."""
        _, features, log_std = self._given
        return features.shape[0], *log_std.shape

    def under(self, noise: Tensor) -> Tensor:
        """Return the actions (B, *action) of standard normal noise (B, F, A), without a gradient."""
        mean, features, log_std = (tensor.detach() for tensor in self._given)
        deviation = torch.bmm(features[:, None], noise * log_std.exp())
        return self._squashed(mean + deviation.view_as(mean))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(*(tensor.detach() for tensor in self._given))

    @abstractmethod
    def _squashed(self, action: Tensor) -> Tensor:
        """Squash the Gaussian actions, if the distribution does."""


class StateDependentGaussian(StateDependentNoise, DiagonalGaussian):
    """An unbounded Gaussian with state-dependent noise; arguments as of :class:`StateDependentNoise`."""

    def _squashed(self, action: Tensor) -> Tensor:
        return action


class SquashedStateDependentGaussian(StateDependentNoise, SquashedGaussian):
    """A tanh-squashed Gaussian with state-dependent noise; arguments as of :class:`StateDependentNoise`."""

    def _squashed(self, action: Tensor) -> Tensor:
        return action.tanh()


class ScaledStateDependentNoise(Scaled):
    """A :class:`StateDependentNoise` over (-1, 1), stretched to the bounds of a Box; arguments as of `Scaled`."""

    inner: StateDependentNoise

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """That of the inner distribution."""
        return self.inner.noise_shape

    def under(self, noise: Tensor) -> Tensor:
        """Return the actions (B, *action) of standard normal noise, without a gradient."""
        return self.stretched(self.inner.under(noise))


class GaussianMixture(Distribution):
    """A mixture of ``K`` diagonal Gaussians (Bishop, "Mixture density networks", 1994).

    Args:
        logits: (B, K), unnormalised log probabilities of the components.
        component_mean: (B, K, *action).
        component_log_std: broadcasts against ``component_mean``.
    """

    def __init__(self, logits: Tensor, component_mean: Tensor, component_log_std: Tensor) -> None:
        self.component = Categorical(logits)
        self.component_mean = component_mean
        self.component_log_std = component_log_std.expand_as(component_mean)
        self._shape = component_mean.shape[2:]

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (B, K), means and logarithms of standard deviations of the components (B, K, *action)."""
        return self.component.logits, self.component_mean, self.component_log_std

    @property
    def mean(self) -> Tensor:
        """Expected action, (B, *action)."""
        weighted = self.component.probabilities.unsqueeze(-1) * self.component_mean.flatten(2)
        return with_shape(weighted.sum(1), self._shape)

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) without a gradient."""
        index = self.component.sample(generator, n).unsqueeze(-1)
        mean, std = self._chosen(self.component_mean, index), self._chosen(self.component_log_std, index).exp_()
        return torch.addcmul(mean, std, torch.empty_like(mean).normal_(generator=generator))

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        deviation = action.unsqueeze(-1 - len(self._shape)) - self.component_mean
        densities = self._sum(log_density(deviation * (-self.component_log_std).exp(), self.component_log_std))
        return (self.component.log_probs + densities).logsumexp(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """Upper bound of the entropy in nats, (B, 1): the joint entropy of action and component."""
        entropies = self._sum(self.component_log_std + 0.5 + LOG_SQRT_2PI)
        return self.component.entropy() + (self.component.probabilities * entropies).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        """Mean of the component with the highest peak, (B, *action)."""
        peaks = self.component.log_probs - self._sum(self.component_log_std)
        index = peaks.argmax(-1, keepdim=True).unsqueeze(-1)
        return with_shape(self.component_mean.flatten(2).take_along_dim(index, dim=1).squeeze(1), self._shape)

    def kl(self, other: Self) -> Tensor:
        """Upper bound of KL(self || other) in nats, (B, 1); the divergence itself has no closed form.

        It is that of the joint distributions of action and component (Do, "Fast approximation of Kullback-Leibler
        distance", 2003), 0 where both mixtures are equal.
        """
        per_component = self._sum(
            kl_of_normals(self.component_mean, self.component_log_std, other.component_mean, other.component_log_std)
        )
        within = (self.component.probabilities * per_component).sum(-1, keepdim=True)
        return self.component.kl(other.component) + within

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(*(parameter.detach() for parameter in self.parameters))

    def _sum(self, per_number: Tensor) -> Tensor:
        """Sum over the components of an action: (..., B, K, *action) to (..., B, K)."""
        return per_number.flatten(-len(self._shape)).sum(-1)

    def _chosen(self, of_components: Tensor, index: Tensor) -> Tensor:
        """Select the components ``index`` (..., B, 1, 1) of each row: (..., B, *action), without a gradient."""
        numbers = of_components.detach().flatten(2)
        if index.ndim > numbers.ndim:
            numbers = numbers.unsqueeze(0)
        return with_shape(numbers.take_along_dim(index, dim=-2).squeeze(-2), self._shape)
