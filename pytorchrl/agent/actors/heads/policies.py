"""Heads of policies: the default distribution of an action space, and deterministic actions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, box_of
from pytorchrl.agent.actors.heads.gaussian_policies import GaussianPolicy
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Categorical,
    MultiCategorical,
)
from storages.component.hyper_parameters import Positive


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
