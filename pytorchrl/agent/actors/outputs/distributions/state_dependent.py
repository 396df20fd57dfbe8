"""Normal distributions whose noise is a linear function of features: generalised state-dependent exploration."""

from abc import abstractmethod
from typing import Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution
from pytorchrl.agent.actors.outputs.distributions.gaussian import DiagonalGaussian, SquashedGaussian
from pytorchrl.agent.actors.outputs.distributions.scaled import Scaled

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
