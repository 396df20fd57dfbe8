"""Heads of policies: the default distribution of an action space, softmax policies, and deterministic actions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.continuous_policies import GaussianPolicy
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, box_of, discrete_space_of
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, orthogonal
from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Categorical,
    FlooredCategorical,
    MellowmaxCategorical,
    MultiCategorical,
)
from storages.component.hyper_parameters import Positive, UnitInterval


@dataclass(frozen=True)
class Policy(DistributionHead):
    """The default distribution of an action space; an unbounded Gaussian for a Box.

    Args:
        gain: of the layer's orthogonal initialisation; small, so that initial distributions hardly depend on the state.
    """

    gain: Positive = 0.01

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a distribution."""
        space = actor.action_space
        module: CategoricalLayer | _MultiCategorical | _Bernoulli
        match space:
            case spaces.Discrete(n=n):
                module = CategoricalLayer(actor.linear(features, int(n)))
            case spaces.MultiDiscrete(nvec=nvec, shape=shape):
                choices = nvec.ravel().tolist()
                module = _MultiCategorical(actor.linear(features, sum(choices)), choices, shape)
            case spaces.MultiBinary(shape=shape):
                module = _Bernoulli(actor.linear(features, math.prod(shape)), shape)
            case _:
                return GaussianPolicy(gain=self.gain).build(features, actor)
        orthogonal(module.layer, self.gain)
        return module


@dataclass(frozen=True)
class DeterministicPolicy:
    """A deterministic policy with actions in (-scale, scale).

    Args:
        scale: actions lie in (-scale, scale).
        squash: by a tanh; False leaves actions unbounded.
        size: A, numbers of an action; None takes that of the action space.
    """

    scale: float = 1.0
    squash: bool = True
    size: int | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, A)."""
        size = math.prod(box_of(actor, self).shape or (1,)) if self.size is None else self.size
        return DeterministicLayer(actor.linear(features, size), self.scale, self.squash)


class CategoricalLayer(OutputLayer):
    """The module of :class:`Policy` for Discrete actions: one linear layer.

    Args:
        layer: from features to the logits of actions.
    """

    def output(self, numbers: Tensor) -> Categorical:
        """Return the distribution of the logits (N, k)."""
        return Categorical(numbers)


class _MultiCategorical(OutputLayer):
    def __init__(self, layer: nn.Module, choices: Sequence[int], shape: tuple[int, ...]) -> None:
        super().__init__(layer)
        self._choices, self._shape = tuple(choices), shape

    def output(self, numbers: Tensor) -> MultiCategorical:
        return MultiCategorical(numbers, self._choices, self._shape)


class _Bernoulli(OutputLayer):
    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__(layer)
        self._shape = shape

    def output(self, numbers: Tensor) -> Bernoulli:
        return Bernoulli(numbers.view(-1, *self._shape))


class DeterministicLayer(OutputLayer):
    """The module of :class:`DeterministicPolicy`: one linear layer.

    Args:
        layer: from features to the components of an action.
        scale: as of ``DeterministicPolicy``.
        squash: as of ``DeterministicPolicy``.
    """

    def __init__(self, layer: nn.Module, scale: float, squash: bool) -> None:
        super().__init__(layer)
        self.scale, self.squash = scale, squash

    def output(self, numbers: Tensor) -> Tensor:
        """Return the actions (N, A)."""
        action = torch.tanh(numbers) if self.squash else numbers
        return action if self.scale == 1 else self.scale * action


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
