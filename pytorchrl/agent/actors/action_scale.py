"""Scaling of actions between [-1, 1], as in networks, and a bounded Box, as in environments."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn


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
