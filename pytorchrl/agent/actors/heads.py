"""Heads: from features to what an algorithm needs. The algorithm chooses them, the user chooses the body below."""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
)
from pytorchrl.agent.actors.initialisation import orthogonal
from pytorchrl.agent.actors.quick_module import QuickModule, linear

_SMALLEST_LOG_STD, _LARGEST_LOG_STD = -20.0, 2.0
_POLICY_GAIN = 0.01


class CategoricalHead(QuickModule):
    """A probability for each of ``n`` actions, almost equal at first."""

    def __init__(self, input_size: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, n)
        orthogonal(self.linear, _POLICY_GAIN)

    def forward(self, features: Tensor) -> Categorical:
        """(B, input_size) to a distribution over (B, 1) actions."""
        return Categorical(linear(self.linear, features))


class MultiCategoricalHead(QuickModule):
    """Probabilities of several independent choices, almost equal at first.

    Args:
        input_size: features in.
        choices: how many actions each choice is among.
        action_shape: of one action, a number for each choice.
    """

    def __init__(self, input_size: int, choices: Sequence[int], action_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, sum(choices))
        self._choices, self._action_shape = tuple(choices), action_shape
        orthogonal(self.linear, _POLICY_GAIN)

    def forward(self, features: Tensor) -> MultiCategorical:
        """(B, input_size) to a distribution over (B, *action)."""
        return MultiCategorical(linear(self.linear, features), self._choices, self._action_shape)


class BernoulliHead(QuickModule):
    """Probabilities of independent numbers that are 0 or 1, almost even at first."""

    def __init__(self, input_size: int, action_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, math.prod(action_shape))
        self._action_shape = action_shape
        orthogonal(self.linear, _POLICY_GAIN)

    def forward(self, features: Tensor) -> Bernoulli:
        """(B, input_size) to a distribution over (B, *action)."""
        return Bernoulli(linear(self.linear, features).view(-1, *self._action_shape))


class GaussianHead(QuickModule):
    """A normal around a mean that depends on the features, with a standard deviation that does not.

    Args:
        input_size: features in.
        action_shape: of one action.
        initial_log_std: logarithm of the standard deviation at first.
    """

    def __init__(self, input_size: int, action_shape: tuple[int, ...], initial_log_std: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, math.prod(action_shape))
        self.log_std = nn.Parameter(torch.full(action_shape, initial_log_std))
        self._action_shape = action_shape
        orthogonal(self.linear, _POLICY_GAIN)

    def forward(self, features: Tensor) -> DiagonalGaussian:
        """(B, input_size) to a distribution over (B, *action)."""
        mean = linear(self.linear, features)
        return DiagonalGaussian(mean.view(-1, *self._action_shape), self.log_std)


class SquashedGaussianHead(QuickModule):
    """A normal squashed into (-1, 1), mean and standard deviation from the features."""

    def __init__(self, input_size: int, action_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, 2 * action_size)

    def forward(self, features: Tensor) -> SquashedGaussian:
        """(B, input_size) to a distribution over (B, action_size)."""
        mean, log_std = linear(self.linear, features).chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(_SMALLEST_LOG_STD, _LARGEST_LOG_STD))


class DeterministicHead(QuickModule):
    """One action in (-1, 1), without chance."""

    def __init__(self, input_size: int, action_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, action_size)

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, action_size)."""
        return torch.tanh(linear(self.linear, features))


class ValuesHead(QuickModule):
    """``n`` unbounded numbers: the value of a state, or of each action in it.

    Args:
        input_size: features in.
        n: numbers out.
        gain: of an orthogonal initialisation; None keeps torch's uniform one.
    """

    def __init__(self, input_size: int, n: int, gain: float | None) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, n)
        if gain is not None:
            orthogonal(self.linear, gain)

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, n)."""
        return linear(self.linear, features)


class ActionScale(QuickModule):
    """Actions in (-1, 1), which networks work with, to and from those of a bounded Box, which environments take."""

    low: Tensor
    high: Tensor
    half_range: Tensor
    middle: Tensor

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._dtype = torch.from_numpy(space.low).dtype
        # Half precision is too coarse to scale with.
        precision = torch.promote_types(self._dtype, torch.float32)
        for name, value, dtype in (
            ("low", space.low, self._dtype),
            ("high", space.high, self._dtype),
            ("half_range", (high - low) / 2, precision),
            ("middle", (high + low) / 2, precision),
        ):
            self.register_buffer(name, torch.as_tensor(value, dtype=dtype), persistent=False)
        self._shape = space.shape or (1,)
        self._is_unit = bool((low == -1).all() and (high == 1).all())

    def to_env(self, action: Tensor) -> Tensor:
        """(B, A) in [-1, 1] to (B, *action) within the Box, of its dtype."""
        shaped = action.view(-1, *self._shape)
        if self._is_unit:
            return shaped.to(self._dtype)
        # Rounding may leave the Box by a hair, which some environments refuse.
        return torch.addcmul(self.middle, shaped, self.half_range).to(self._dtype).clamp(self.low, self.high)

    def from_env(self, action: Tensor) -> Tensor:
        """(B, *action) within the Box to (B, A) in [-1, 1]."""
        scaled = action if self._is_unit else (action - self.middle) / self.half_range
        return scaled.flatten(1).float()
