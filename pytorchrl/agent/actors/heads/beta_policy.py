"""The head of Beta policies over a bounded Box."""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, bounded_box_of
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.outputs import Beta
from storages.component.hyper_parameters import Positive


@dataclass(frozen=True)
class BetaPolicy(DistributionHead):
    """A Beta policy over the bounds of a Box; both concentrations depend on the features.

    Chou et al., "Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement Learning using the
    Beta Distribution" (ICML 2017), whose concentrations are ``1 + softplus(.)``, so that there is one mode.

    Args:
        smallest_concentration: added to the softplus; below 1 allows a mode at both bounds.
        gain: of the layer's orthogonal initialisation; small, so that initial distributions hardly depend on the state.
    """

    smallest_concentration: Positive = 1.0
    gain: Positive = 0.01

    @property
    def is_scaled(self) -> bool:
        """True."""
        return True

    @property
    def is_bounded(self) -> bool:
        """True."""
        return True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`Beta`."""
        layer = actor.linear(features, 2 * math.prod(bounded_box_of(actor, self).shape or (1,)))
        orthogonal(layer, self.gain)
        return _Beta(layer, self.smallest_concentration)


class _Beta(OutputLayer):
    def __init__(self, layer: nn.Module, smallest: float) -> None:
        super().__init__(layer)
        self._smallest = smallest

    def output(self, numbers: Tensor) -> Beta:
        return Beta(*(F.softplus(numbers) + self._smallest).chunk(2, dim=-1))
