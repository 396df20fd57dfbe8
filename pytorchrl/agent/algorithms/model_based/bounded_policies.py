"""DreamerV3's distributions of actions."""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import DistributionHead, Policy, SoftmaxPolicy
from pytorchrl.agent.actors.heads.distribution_head import bounded_box_of
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, orthogonal
from pytorchrl.agent.actors.outputs import DiagonalGaussian

_SMALLEST_STD, _LARGEST_STD = 0.1, 1.0


def default_policy(space: gym.Space[Any], uniform_share: float) -> DistributionHead:
    """Return the paper's head for an action space, and the toolkit's for spaces that the paper does not have.

    Args:
        space: of actions.
        uniform_share: share of the uniform distribution over Discrete actions.
    """
    if isinstance(space, spaces.Discrete):
        return SoftmaxPolicy(min_probability=uniform_share / int(space.n))
    return BoundedGaussianPolicy() if is_bounded_box(space) else Policy()


def is_bounded_box(space: gym.Space[Any]) -> bool:
    """Return whether a space is a Box with finite bounds."""
    return isinstance(space, spaces.Box) and bool(np.isfinite([space.low, space.high]).all())


@dataclass(frozen=True)
class BoundedGaussianPolicy(DistributionHead):
    """A Gaussian over a bounded Box with a tanh mean, and a standard deviation in [0.1, 1] times half the range."""

    is_scaled = True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`DiagonalGaussian`."""
        size = math.prod(bounded_box_of(actor, self).shape or (1,))
        layer = actor.linear(features, 2 * size)
        orthogonal(layer, 0.01)
        return _BoundedGaussian(layer)


class _BoundedGaussian(OutputLayer):
    def output(self, numbers: Tensor) -> DiagonalGaussian:
        mean, spread = numbers.chunk(2, dim=-1)
        # The shift of the authors' code lets it begin near its largest value.
        deviation = _SMALLEST_STD + (_LARGEST_STD - _SMALLEST_STD) * (spread + 2).sigmoid()
        return DiagonalGaussian(mean.tanh(), deviation.log())
