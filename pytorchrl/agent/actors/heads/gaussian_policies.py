"""Heads that make normal distributions of the actions of a Box."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, bounded_box_of, box_of
from pytorchrl.agent.actors.heads.soft_bounds import above
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.layers.quick_layers import linear
from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.outputs import DiagonalGaussian, SquashedGaussian
from storages.component.hyper_parameters import Positive

Covariance: TypeAlias = Literal["diagonal", "spherical", "fixed", "state-dependent"]

SMALLEST_LOG_STD, LARGEST_LOG_STD = -20.0, 2.0


@dataclass(frozen=True)
class GaussianPolicy(DistributionHead):
    """A normal over the actions of a Box, of independent numbers.

    Args:
        covariance: what standard deviations follow from: "diagonal" learns one for each number of an action,
            "spherical" one for all, "fixed" keeps the initial one, "state-dependent" makes them of the features.
        bounded_mean: let means lie within the bounds of the Box, by a tanh. Standard deviations are then shares of half
            the range. Other means begin in the middle of the bounds, where these are finite.
        initial_log_std: logarithm of the standard deviation at first; None takes the actor's.
        min_log_std: what that logarithm stays above, so that likelihoods of data whose actions follow from the
            observations do not grow without end; None for no such bound.
        gain: of the layer's orthogonal initialisation; small, so that means are almost those of the bias at first.
    """

    covariance: Covariance = "diagonal"
    bounded_mean: bool = False
    initial_log_std: float | None = None
    min_log_std: float | None = None
    gain: Positive = 0.01

    @property
    def is_scaled(self) -> bool:
        """Whether the mean is bounded."""
        return self.bounded_mean

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a :class:`DiagonalGaussian`."""
        space = (bounded_box_of if self.bounded_mean else box_of)(actor, self)
        shape = space.shape or (1,)
        size = math.prod(shape)
        log_std = actor.initial_log_std if self.initial_log_std is None else self.initial_log_std
        of_features = self.covariance == "state-dependent"
        layer = actor.linear(features, 2 * size if of_features else size)
        orthogonal(layer, self.gain)
        if not self.bounded_mean:
            with torch.no_grad():
                layer.get_parameter("bias")[:size] = _middle(space)
        shape = (size,) if self.bounded_mean else shape
        if of_features:
            return _GaussianOfFeatures(layer, shape, self.bounded_mean, log_std, self.min_log_std)
        deviations = torch.full((1,) if self.covariance == "spherical" else shape, log_std)
        learns_std = self.covariance != "fixed"
        return GaussianLayer(layer, shape, self.bounded_mean, deviations, learns_std, self.min_log_std)


def _middle(space: spaces.Box) -> Tensor:
    """(size,): of the bounds of each number, 0 where one is infinite."""
    is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = (np.where(is_bounded, bound, 0.0).ravel() for bound in (space.low, space.high))
    return torch.from_numpy(low / 2 + high / 2)


@dataclass(frozen=True)
class SquashedGaussianPolicy(DistributionHead):
    """A normal squashed into (-1, 1), mean and standard deviation from the features."""

    @property
    def is_scaled(self) -> bool:
        """Yes."""
        return True

    @property
    def is_bounded(self) -> bool:
        """Yes."""
        return True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a :class:`SquashedGaussian`."""
        size = math.prod(bounded_box_of(actor, self).shape or (1,))
        return _SquashedGaussian(actor.linear(features, 2 * size))


@dataclass(frozen=True)
class LatentGaussian:
    """A normal over some numbers that are no action, mean and standard deviation from the features.

    Args:
        size: how many numbers.
    """

    size: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a :class:`DiagonalGaussian`."""
        return _GaussianOfFeatures(actor.linear(features, 2 * self.size), (self.size,))


class GaussianLayer(QuickModule):
    """The module of :class:`GaussianPolicy` whose standard deviation does not depend on the features.

    Args:
        layer: from features to means.
        shape: of an action.
        bounded_mean: as of ``GaussianPolicy``.
        log_std: broadcasts against an action.
        learns_std: whether it is a parameter.
        min_log_std: as of ``GaussianPolicy``.
    """

    log_std: Tensor

    def __init__(
        self,
        layer: nn.Module,
        shape: tuple[int, ...],
        bounded_mean: bool,
        log_std: Tensor,
        learns_std: bool,
        min_log_std: float | None,
    ) -> None:
        super().__init__()
        self.layer, self._shape, self._bounded_mean, self._min_log_std = layer, shape, bounded_mean, min_log_std
        self.is_plain = not bounded_mean and min_log_std is None
        """Whether means and standard deviations are what the layer makes, and the parameter."""
        if learns_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std, persistent=False)

    def forward(self, features: Tensor) -> DiagonalGaussian:
        """(N, features) to a distribution."""
        return self.distribution(linear(self.layer, features))

    def distribution(self, numbers: Tensor) -> DiagonalGaussian:
        """The distribution of the numbers (N, A) that the layer makes."""
        mean = numbers.view(-1, *self._shape)
        log_std = above(self._min_log_std, self.log_std)
        return DiagonalGaussian(mean.tanh() if self._bounded_mean else mean, log_std)


class _GaussianOfFeatures(QuickModule):
    def __init__(
        self,
        layer: nn.Module,
        shape: tuple[int, ...],
        bounded_mean: bool = False,
        initial_log_std: float = 0.0,
        min_log_std: float | None = None,
    ) -> None:
        super().__init__()
        self.layer, self._shape, self._bounded_mean, self._min_log_std = layer, shape, bounded_mean, min_log_std
        self._initial_log_std = initial_log_std

    def forward(self, features: Tensor) -> DiagonalGaussian:
        mean, log_std = (part.view(-1, *self._shape) for part in linear(self.layer, features).chunk(2, dim=-1))
        log_std = (log_std + self._initial_log_std) if self._initial_log_std else log_std
        log_std = above(self._min_log_std, log_std).clamp(SMALLEST_LOG_STD, LARGEST_LOG_STD)
        return DiagonalGaussian(mean.tanh() if self._bounded_mean else mean, log_std)


class _SquashedGaussian(QuickModule):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> SquashedGaussian:
        mean, log_std = linear(self.layer, features).chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(SMALLEST_LOG_STD, LARGEST_LOG_STD))
