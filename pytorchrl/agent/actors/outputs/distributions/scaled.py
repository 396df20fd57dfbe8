"""Distributions over (-1, 1), stretched to the bounds of a Box."""

from typing import Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution, with_shape


class Scaled(Distribution):
    """Another distribution, whose actions x are scaled to ``middle + half_range * x``.

    Args:
        inner: distribution of actions (B, A).
        middle: (*action), of A components.
        half_range: (*action), greater than 0.
    """

    def __init__(self, inner: Distribution, middle: Tensor, half_range: Tensor) -> None:
        self.inner = inner
        self.has_rsample = inner.has_rsample
        self._middle, self._half_range = middle, half_range

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Those of the inner distribution."""
        return self.inner.parameters

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) without a gradient."""
        return self.stretched(self.inner.sample(generator, n))

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) with gradients, where the inner distribution does."""
        return self.stretched(self.inner.rsample(generator, n))

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw (B, *action) and compute its log density (B, 1), as the inner distribution does."""
        numbers, log_prob = self.inner.sample_with_log_prob(generator)
        return self.stretched(numbers), log_prob - self._log_volume()

    def sample_with_score(self, generator: torch.Generator, n: int | None = None) -> tuple[Tensor, Tensor]:
        """Draw (B, *action) or (n, B, *action) without gradients, and their log density, as the inner one does."""
        numbers, log_prob = self.inner.sample_with_score(generator, n)
        return self.stretched(numbers), log_prob - self._log_volume()

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        numbers = ((action - self._middle) / self._half_range).flatten(-self._middle.ndim)
        return self.inner.log_prob(numbers) - self._log_volume()

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        return self.inner.entropy() + self._log_volume()

    def mode(self) -> Tensor:
        """The mode of the inner distribution, (B, *action)."""
        return self.stretched(self.inner.mode())

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1), both of the same bounds."""
        return self.inner.kl(other.inner)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.inner.detach(), self._middle, self._half_range)

    def stretched(self, numbers: Tensor) -> Tensor:
        """Scale actions (..., A) of the inner distribution to (..., *action)."""
        return torch.addcmul(self._middle, with_shape(numbers, self._middle.shape), self._half_range)

    def _log_volume(self) -> Tensor:
        return self._half_range.log().sum()
