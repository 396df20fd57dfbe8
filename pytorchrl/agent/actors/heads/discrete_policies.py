"""Heads of categorical policies over a Discrete space."""

from dataclasses import dataclass

from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, discrete_space_of
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.outputs import Categorical, FlooredCategorical, MellowmaxCategorical
from storages.component.hyper_parameters import Positive, UnitInterval


@dataclass(frozen=True)
class SoftmaxPolicy(DistributionHead):
    """A softmax policy with a temperature and a lower bound of probabilities.

    Of n allowed actions: ``min_probability + (1 - n * min_probability) * softmax(logits / temperature)``.

    Args:
        temperature: the larger, the more even the probabilities, and the smaller their gradients.
        min_probability: lower bound of every action's probability, so that no action is given up; less than ``1 / n``.
        gain: of the layer's orthogonal initialisation; small, so that all actions are almost equally likely at first.
    """

    temperature: Positive = 1.0
    min_probability: UnitInterval = 0.0
    gain: Positive = 0.01

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`Categorical`."""
        actions = int(discrete_space_of(actor, self).n)
        if self.min_probability * actions >= 1:
            raise ValueError(
                f"SoftmaxPolicy: min_probability must be less than 1 / {actions}, since there are {actions} actions, "
                f"got {self.min_probability}"
            )
        layer = actor.linear(features, actions)
        orthogonal(layer, self.gain)
        return _Softmax(layer, self.temperature, self.min_probability)


@dataclass(frozen=True)
class MellowmaxPolicy(DistributionHead):
    """The maximum-entropy policy whose expected action preference is the mellowmax of the learnt preferences.

    Asadi and Littman, "An Alternative Softmax Operator for Reinforcement Learning" (arXiv 1612.05628), section 5: a
    softmax of the preferences, whose inverse temperature depends on their differences and is at most omega. With an
    action mask, it depends on the preferences of the allowed actions alone.

    Args:
        omega: of the mellowmax; the larger, the closer the expectation is to the largest preference.
        gain: of the layer's orthogonal initialisation.
    """

    omega: Positive = 1.0
    gain: Positive = 1.0

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`Categorical`."""
        layer = actor.linear(features, int(discrete_space_of(actor, self).n))
        orthogonal(layer, self.gain)
        return _Mellowmax(layer, self.omega)


class _Softmax(OutputLayer):
    def __init__(self, layer: nn.Module, temperature: float, min_probability: float) -> None:
        super().__init__(layer)
        self._temperature, self._min_probability = temperature, min_probability

    def output(self, numbers: Tensor) -> Categorical:
        logits = numbers / self._temperature
        if self._min_probability == 0:
            return Categorical(logits)
        return FlooredCategorical(logits, self._min_probability)


class _Mellowmax(OutputLayer):
    def __init__(self, layer: nn.Module, omega: float) -> None:
        super().__init__(layer)
        self._omega = omega

    def output(self, numbers: Tensor) -> Categorical:
        return MellowmaxCategorical(numbers, self._omega)
