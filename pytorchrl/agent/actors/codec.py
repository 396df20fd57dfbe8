"""Actions as networks have them, as storages keep them and as environments take them."""

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.action_scale import ActionScale
from pytorchrl.agent.envs.spaces import random_actions


class ActionCodec(Protocol):
    """How actions of one space are represented, (B, *action) each."""

    size: int
    """Numbers that represent an action where it is an input of a network."""

    stores_env_actions: bool
    """Whether a storage keeps what environments take, and not what networks have."""

    def to_env(self, action: Tensor) -> Tensor:
        """Actions of a network as environments take them."""

    def from_storage(self, action: Tensor) -> Tensor:
        """Stored actions as networks have them."""

    def features(self, action: Tensor) -> Tensor:
        """(B, size): a network's actions as inputs of a network."""

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Actions drawn uniformly, one for each environment, as networks have them; on the CPU."""

    def clip(self, action: Tensor) -> Tensor:
        """The nearest actions within the bounds, as networks have them."""


class _SameEverywhere:
    """Actions that networks, storages and environments represent alike."""

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
    """One of ``n`` actions, (B, 1) int64, counted from 0; a one-hot vector where a network takes it."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(space)
        self.size = int(space.n)

    def features(self, action: Tensor) -> Tensor:
        """(B, n) one-hot."""
        return F.one_hot(action[:, 0].long(), self.size).float()


class SeveralChoicesCodec(_SameEverywhere):
    """MultiDiscrete and MultiBinary actions, (B, *action) integers counted from 0; one-hot vectors side by side."""

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        super().__init__(space)
        choices = space.nvec.ravel().tolist() if isinstance(space, spaces.MultiDiscrete) else [2] * _numbers(space)
        self._choices: list[int] = choices
        self.size = sum(choices)

    def features(self, action: Tensor) -> Tensor:
        """(B, sum of all n)."""
        columns = action.flatten(1).long().unbind(1)
        return torch.cat([F.one_hot(c, n) for c, n in zip(columns, self._choices, strict=True)], dim=1).float()


class BoundedCodec:
    """Actions of a bounded Box: (B, A) float32 in [-1, 1] in networks, of the Box in storages and environments."""

    stores_env_actions = True

    def __init__(self, space: spaces.Box, device: torch.device) -> None:
        self.scale = ActionScale(space).to(device)
        self.size = _numbers(space)

    def to_env(self, action: Tensor) -> Tensor:
        """Of the Box."""
        return self.scale.to_env(action)

    def from_storage(self, action: Tensor) -> Tensor:
        """Within [-1, 1]."""
        return self.scale.from_env(action)

    def features(self, action: Tensor) -> Tensor:
        """(B, A): as they are."""
        return action

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Uniform in [-1, 1], which is uniform in the Box."""
        return torch.from_numpy(random.uniform(-1.0, 1.0, (num_envs, self.size)).astype(np.float32))

    def clip(self, action: Tensor) -> Tensor:
        """Within [-1, 1]."""
        return action.clamp(-1, 1)


class UnboundedCodec(_SameEverywhere):
    """Actions of any Box, as drawn in networks and storages, clipped into the Box for environments."""

    def __init__(self, space: spaces.Box, device: torch.device) -> None:
        super().__init__(space)
        self.size = _numbers(space)
        is_bounded = bool(np.isfinite(space.high).any() or np.isfinite(space.low).any())
        bounds = (torch.as_tensor(bound, device=device) for bound in (space.low, space.high))
        self._bounds = tuple(bounds) if is_bounded else None

    def to_env(self, action: Tensor) -> Tensor:
        """Within the Box."""
        return action if self._bounds is None else action.clamp(*self._bounds)

    def clip(self, action: Tensor) -> Tensor:
        """Within the Box."""
        return self.to_env(action)

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        """Uniform where the Box is bounded, else standard normal; float32, as networks draw them."""
        return super().uniform(random, num_envs).float()

    def features(self, action: Tensor) -> Tensor:
        """(B, A): flattened."""
        return action.flatten(1).float()


def make_codec(space: gym.Space[Any], device: torch.device, *, scaled: bool) -> ActionCodec:
    """The codec of a space.

    Args:
        space: of actions.
        device: where networks compute.
        scaled: whether networks have actions of a Box within [-1, 1].
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
