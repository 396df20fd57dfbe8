"""The head of policies with generalised state-dependent exploration (gSDE)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, bounded_box_of, box_of
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.outputs import SquashedStateDependentGaussian, StateDependentGaussian
from storages.component.hyper_parameters import Count, Positive


@dataclass(frozen=True)
class GSDEPolicy(DistributionHead):
    """A Gaussian policy whose noise is a linear function of the features, by a matrix kept for some steps.

    Raffin et al., "Smooth Exploration for Robotic Reinforcement Learning" (arXiv 2005.05719). Each environment has a
    matrix, drawn from the collector's generator and saved with the run. Actions sampled in updates have independent
    noise.

    Args:
        resample_every: steps of each environment between draws of the matrix (n in the paper).
        squash: squash actions into the bounds of a Box by a tanh; required by SAC.
        initial_log_std: initial logarithm of the standard deviation of the matrix's entries. An action's standard
            deviation is that times the Euclidean norm of the features.
        gain: of the mean's orthogonal initialisation; small, so that means are almost 0 at first.
        learns_features: whether gradients of standard deviations flow into the layers before the head.
    """

    resample_every: Count = 8
    squash: bool = False
    initial_log_std: float = -2.0
    gain: Positive = 0.01
    learns_features: bool = False

    @property
    def noise_interval(self) -> int:
        """Steps between draws of the matrix."""
        return self.resample_every

    @property
    def is_scaled(self) -> bool:
        """Whether it is squashed."""
        return self.squash

    @property
    def is_bounded(self) -> bool:
        """Whether it is squashed."""
        return self.squash

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a distribution with state-dependent noise."""
        shape = (bounded_box_of if self.squash else box_of)(actor, self).shape or (1,)
        size = math.prod(shape)
        layer = actor.linear(features, size)
        orthogonal(layer, self.gain)
        log_std = nn.Parameter(torch.full((features, size), self.initial_log_std))
        return _GSDE(layer, log_std, (size,) if self.squash else shape, self)


class _GSDE(nn.Module):
    def __init__(self, layer: nn.Module, log_std: nn.Parameter, shape: tuple[int, ...], head: GSDEPolicy) -> None:
        super().__init__()
        self.layer, self.log_std, self._shape = layer, log_std, shape
        self._distribution = SquashedStateDependentGaussian if head.squash else StateDependentGaussian
        self._learns_features = head.learns_features

    def forward(self, features: Tensor) -> StateDependentGaussian | SquashedStateDependentGaussian:
        mean = self.layer(features).view(-1, *self._shape)
        return self._distribution(mean, features if self._learns_features else features.detach(), self.log_std)
