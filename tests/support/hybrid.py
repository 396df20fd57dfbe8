"""Actions that the wrapper JoinActions joins from choices and their parameters."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import pytorchrl as prl

PARTS = spaces.Dict(
    angle=spaces.Box(np.float32(-2), np.float32(1), (1,)),
    kind=spaces.Discrete(3, start=1),
    speed=spaces.Box(np.float32(0), np.float32(1), ()),
)
"""A choice of three, between its two parameters."""


class _Env(gym.Env[Any, Any]):
    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space


def joined(parts: gym.Space[Any] = PARTS) -> gym.Space[Any]:
    """The joined space; of ``PARTS``, a parameter in [-2, 1], three scores, and a parameter in [0, 1]."""
    return prl.JoinActions(_Env(parts)).action_space
