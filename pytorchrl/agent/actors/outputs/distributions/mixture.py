"""Gaussian mixtures, for multimodal distributions of actions."""

from typing import Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions.discrete import Categorical
from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution, with_shape
from pytorchrl.agent.actors.outputs.distributions.gaussian import LOG_SQRT_2PI, kl_of_normals, log_density


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
