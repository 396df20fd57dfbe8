"""Codecs: conversion of actions between networks, storages and environments."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.envs.spaces import choices_of, random_actions


class ActionCodec(Protocol):
    """Conversions between the representations of a space's actions, (B, *action) each."""

    size: int
    """Size of the vector that encodes an action as an input of a network."""

    stores_env_actions: bool
    """Whether storages keep actions as environments take them, rather than as networks output them."""

    def to_env(self, action: Tensor) -> Tensor:
        """Convert actions of a network to those of environments."""

    def from_storage(self, action: Tensor) -> Tensor:
        """Convert stored actions to those of a network."""

    def features(self, action: Tensor) -> Tensor:
        """Encode a network's actions as inputs of a network, (B, size)."""

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Draw a uniformly random action for each environment, as a network outputs them; on the CPU."""

    def clip(self, action: Tensor) -> Tensor:
        """Clip a network's actions to the bounds."""


class _SameEverywhere:
    """Base class of codecs whose actions are the same in networks, storages and environments."""

    size: int
    stores_env_actions = False

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = space

    def to_env(self, action: Tensor) -> Tensor:
        return action

    def from_storage(self, action: Tensor) -> Tensor:
        return action

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        return torch.from_numpy(random_actions(self._space, num_envs, random))

    def clip(self, action: Tensor) -> Tensor:
        return action


class DiscreteCodec(_SameEverywhere):
    """Codec of a Discrete space: (B, 1) int64 counted from 0, one-hot as an input of networks."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space)
        self.size = int(space.n)

    def features(self, action: Tensor) -> Tensor:
        """(B, n) one-hot."""
        return F.one_hot(action[:, 0].long(), self.size).float()


class SeveralChoicesCodec(_SameEverywhere):
    """Codec of MultiDiscrete and MultiBinary: integers from 0, (B, *action), concatenated one-hot vectors as inputs."""

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        super().__init__(space)
        self._choices = choices_of(space)
        self.size = sum(self._choices)

    def features(self, action: Tensor) -> Tensor:
        """(B, sum of all n)."""
        columns = action.flatten(1).long().unbind(1)
        return torch.cat([F.one_hot(c, n) for c, n in zip(columns, self._choices, strict=True)], dim=1).float()


class BoundedCodec:
    """Codec of a bounded Box: (B, A) float32 in [-1, 1] in networks, within the Box in storages and environments."""

    stores_env_actions = True

    def __init__(self, space: spaces.Box, device: torch.device) -> None:
        self.scale = ActionScale(space).to(device)
        self.size = _numbers(space)

    def to_env(self, action: Tensor) -> Tensor:
        """Scale to the bounds of the Box."""
        return self.scale.to_env(action)

    def from_storage(self, action: Tensor) -> Tensor:
        """Scale to [-1, 1]."""
        return self.scale.from_env(action)

    def features(self, action: Tensor) -> Tensor:
        """Return the actions (B, A) unchanged."""
        return action

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Draw uniformly from [-1, 1], which is uniform in the Box."""
        return torch.from_numpy(random.uniform(-1.0, 1.0, (num_envs, self.size)).astype(np.float32))

    def clip(self, action: Tensor) -> Tensor:
        """Clip to [-1, 1]."""
        return action.clamp(-1, 1)


class UnboundedCodec(_SameEverywhere):
    """Codec of any Box: actions as sampled in networks and storages, clipped to the bounds for environments."""

    def __init__(self, space: spaces.Box, device: torch.device) -> None:
        super().__init__(space)
        self.size = _numbers(space)
        is_bounded = bool(np.isfinite(space.high).any() or np.isfinite(space.low).any())
        bounds = (torch.as_tensor(bound, device=device) for bound in (space.low, space.high))
        self._bounds = tuple(bounds) if is_bounded else None

    def to_env(self, action: Tensor) -> Tensor:
        """Clip to the bounds of the Box."""
        return action if self._bounds is None else action.clamp(*self._bounds)

    def clip(self, action: Tensor) -> Tensor:
        """Clip to the bounds of the Box."""
        return self.to_env(action)

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Draw uniformly where the Box is bounded, else from a standard normal; float32, as networks do."""
        return super().uniform(random, num_envs).float()

    def features(self, action: Tensor) -> Tensor:
        """Flatten to (B, A)."""
        return action.flatten(1).float()


def make_codec(space: gym.Space[Any], device: torch.device, *, scaled: bool) -> ActionCodec:
    """Make the codec of an action space.

    Args:
        space: action space.
        device: where networks compute.
        scaled: whether networks output actions of a Box in [-1, 1].
    """
    match space:
        case spaces.Discrete():
            return DiscreteCodec(space)
        case spaces.MultiDiscrete() | spaces.MultiBinary():
            return SeveralChoicesCodec(space)
    assert isinstance(space, spaces.Box)
    return BoundedCodec(space, device) if scaled else UnboundedCodec(space, device)


def _numbers(space: gym.Space[Any]) -> int:
    return int(np.prod(space.shape or (1,)))


class ActionScale(nn.Module):
    """Scale actions in [-1, 1], as in networks, to and from a bounded Box, as in environments."""

    low: Tensor
    high: Tensor
    half_range: Tensor
    middle: Tensor

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._dtype = torch.from_numpy(space.low).dtype
        # Half precision is too coarse for the arithmetic.
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
        """Scale (B, A), clipped to [-1, 1], to (B, *action) within the Box, of its dtype."""
        shaped = action.view(-1, *self._shape)
        if self._is_unit:
            return shaped.clamp(-1, 1).to(self._dtype)
        # Gaussians exceed the bounds, and rounding does slightly, which some environments refuse.
        return torch.addcmul(self.middle, shaped, self.half_range).to(self._dtype).clamp(self.low, self.high)

    def from_env(self, action: Tensor) -> Tensor:
        """Scale (B, *action) within the Box to (B, A) in [-1, 1]."""
        scaled = action if self._is_unit else (action - self.middle) / self.half_range
        return scaled.flatten(1).float()
