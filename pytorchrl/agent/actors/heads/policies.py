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
from pytorchrl.agent.actors.layers.quick_layers import linear
from pytorchrl.agent.actors.layers.quick_module import QuickModule
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
    """

    scale: float = 1.0
    squash: bool = True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, A)."""
        layer = actor.linear(features, math.prod(box_of(actor, self).shape or (1,)))
        return DeterministicLayer(layer, self.scale, self.squash)


class CategoricalLayer(QuickModule):
    """The module of :class:`Policy` for Discrete actions: one linear layer.

    Args:
        layer: from features to the logits of actions.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Categorical:
        """Map (N, features) to a distribution."""
        return Categorical(linear(self.layer, features))


class _MultiCategorical(QuickModule):
    def __init__(self, layer: nn.Module, choices: Sequence[int], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self._choices, self._shape = layer, tuple(choices), shape

    def forward(self, features: Tensor) -> MultiCategorical:
        return MultiCategorical(linear(self.layer, features), self._choices, self._shape)


class _Bernoulli(QuickModule):
    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self._shape = layer, shape

    def forward(self, features: Tensor) -> Bernoulli:
        return Bernoulli(linear(self.layer, features).view(-1, *self._shape))


class DeterministicLayer(QuickModule):
    """The module of :class:`DeterministicPolicy`: one linear layer.

    Args:
        layer: from features to the components of an action.
        scale: as of ``DeterministicPolicy``.
        squash: as of ``DeterministicPolicy``.
    """

    def __init__(self, layer: nn.Module, scale: float, squash: bool) -> None:
        super().__init__()
        self.layer, self.scale, self.squash = layer, scale, squash

    def forward(self, features: Tensor) -> Tensor:
        """(N, features) to (N, A)."""
        numbers = linear(self.layer, features)
        action = torch.tanh(numbers) if self.squash else numbers
        return action if self.scale == 1 else self.scale * action
