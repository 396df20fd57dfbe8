"""Heads that act: distributions of actions, and single actions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.initialisation import orthogonal
from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
)
from pytorchrl.agent.actors.quick_module import QuickModule, linear

_SMALLEST_LOG_STD, _LARGEST_LOG_STD = -20.0, 2.0


@dataclass(frozen=True)
class Policy:
    """The distribution that suits an action space; a normal without bounds for a Box.

    Args:
        gain: of the layer's orthogonal initialisation; small, so that all actions are almost as likely at first.
    """

    gain: float = 0.01

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a distribution."""
        space = actor.action_space
        module: _Categorical | _MultiCategorical | _Bernoulli | _Gaussian
        match space:
            case spaces.Discrete(n=n):
                module = _Categorical(actor.linear(features, int(n)))
            case spaces.MultiDiscrete(nvec=nvec, shape=shape):
                choices = nvec.ravel().tolist()
                module = _MultiCategorical(actor.linear(features, sum(choices)), choices, shape)
            case spaces.MultiBinary(shape=shape):
                module = _Bernoulli(actor.linear(features, math.prod(shape)), shape)
            case _:
                assert isinstance(space, spaces.Box)
                shape = space.shape or (1,)
                module = _Gaussian(actor.linear(features, math.prod(shape)), shape, actor.initial_log_std)
        orthogonal(module.layer, self.gain)
        return module


@dataclass(frozen=True)
class GaussianPolicy:
    """A normal over some numbers, mean and standard deviation from the features.

    Args:
        size: numbers; None takes those of an action.
    """

    size: int | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a :class:`DiagonalGaussian`."""
        size = _action_size(actor) if self.size is None else self.size
        return _GaussianOfFeatures(actor.linear(features, 2 * size))


@dataclass(frozen=True)
class SquashedGaussianPolicy:
    """A normal squashed into (-1, 1), mean and standard deviation from the features."""

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to a :class:`SquashedGaussian`."""
        return _SquashedGaussian(actor.linear(features, 2 * _action_size(actor)))


@dataclass(frozen=True)
class DeterministicPolicy:
    """One action in (-1, 1).

    Args:
        scale: actions lie in (-scale, scale).
    """

    scale: float = 1.0

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features) to (N, A)."""
        return _Deterministic(actor.linear(features, _action_size(actor)), self.scale)


def _action_size(actor: Actor) -> int:
    assert isinstance(actor.action_space, spaces.Box)
    return math.prod(actor.action_space.shape or (1,))


class _Categorical(QuickModule):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Categorical:
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


class _Gaussian(QuickModule):
    """A standard deviation that does not depend on the features."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...], initial_log_std: float) -> None:
        super().__init__()
        self.layer, self._shape = layer, shape
        self.log_std = nn.Parameter(torch.full(shape, initial_log_std))

    def forward(self, features: Tensor) -> DiagonalGaussian:
        return DiagonalGaussian(linear(self.layer, features).view(-1, *self._shape), self.log_std)


class _GaussianOfFeatures(QuickModule):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> DiagonalGaussian:
        mean, log_std = linear(self.layer, features).chunk(2, dim=-1)
        return DiagonalGaussian(mean, log_std.clamp(_SMALLEST_LOG_STD, _LARGEST_LOG_STD))


class _SquashedGaussian(QuickModule):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> SquashedGaussian:
        mean, log_std = linear(self.layer, features).chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(_SMALLEST_LOG_STD, _LARGEST_LOG_STD))


class _Deterministic(QuickModule):
    def __init__(self, layer: nn.Module, scale: float) -> None:
        super().__init__()
        self.layer, self._scale = layer, scale

    def forward(self, features: Tensor) -> Tensor:
        action = torch.tanh(linear(self.layer, features))
        return action if self._scale == 1 else self._scale * action
