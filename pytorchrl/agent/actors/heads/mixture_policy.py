"""The head of Gaussian mixture policies over a Box."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, bounded_box_of, box_of
from pytorchrl.agent.actors.heads.gaussian_policies import largest_log_std
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.outputs import GaussianMixture
from storages.component.hyper_parameters import Count


@dataclass(frozen=True)
class MixturePolicy(DistributionHead):
    """A Gaussian mixture policy over a Box; all its parameters depend on the features.

    Bishop, "Mixture density networks" (1994): for multimodal data, in which the mean of good actions may be a bad one,
    as where experts pass an obstacle on either side. Entropies and divergences are the upper bounds of
    :class:`~pytorchrl.agent.actors.outputs.GaussianMixture`.

    Args:
        num_components: number of Gaussians.
        bounded_mean: keep means within the bounds of the Box by a tanh. Standard deviations are then in units of half
            the range.
        initial_log_std: approximate initial logarithm of the standard deviations, which are at most 2, or 2 above a
            positive initial one; None takes the actor's.
        smallest_log_std: lower bound of that logarithm, without which a component collapses onto an action that is
            repeated in the data, such as a bound.
    """

    num_components: Count = 5
    bounded_mean: bool = False
    initial_log_std: float | None = None
    smallest_log_std: float = -5.0

    @property
    def is_scaled(self) -> bool:
        """Whether means are bounded."""
        return self.bounded_mean

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`GaussianMixture`."""
        shape = (bounded_box_of if self.bounded_mean else box_of)(actor, self).shape or (1,)
        size = math.prod(shape)
        initial = actor.initial_log_std if self.initial_log_std is None else self.initial_log_std
        # Without the small gain of other policies' layers, so that the components differ from the beginning.
        layer = actor.linear(features, self.num_components * (1 + 2 * size))
        return _Mixture(self, layer, (size,) if self.bounded_mean else shape, initial)


class _Mixture(OutputLayer):
    def __init__(self, head: MixturePolicy, layer: nn.Module, shape: tuple[int, ...], initial_log_std: float) -> None:
        super().__init__(layer)
        self._head, self._shape, self._initial_log_std = head, shape, initial_log_std
        self._largest_log_std = largest_log_std(initial_log_std, head.smallest_log_std, head)

    def output(self, numbers: Tensor) -> GaussianMixture:
        components = self._head.num_components
        logits, of_components = numbers[:, :components], numbers[:, components:]
        mean, log_std = (part.reshape(-1, components, *self._shape) for part in of_components.chunk(2, dim=-1))
        log_std = (log_std + self._initial_log_std).clamp(self._head.smallest_log_std, self._largest_log_std)
        return GaussianMixture(logits, mean.tanh() if self._head.bounded_mean else mean, log_std)
