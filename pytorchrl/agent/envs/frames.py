"""Detection of frame stacking in an environment's wrappers."""

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

MOST_FRAMES = 255
"""Storages count frames in a byte."""


def frames_stacked_by(env: gym.Env[Any, Any]) -> int:
    """Return the number of frames that gymnasium's ``FrameStackObservation`` stacks, 0 where there is no stack.

    Wrappers around it may change each frame, but must keep the frames as the first axis.
    """
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, FrameStackObservation):
            depth = int(layer.stack_size)
            return depth if 2 <= depth <= MOST_FRAMES and _have_as_first_axis(env.observation_space, depth) else 0
        layer = layer.env
    return 0


def _have_as_first_axis(space: spaces.Space[Any], depth: int) -> bool:
    leaves = space.values() if isinstance(space, spaces.Dict) else [space]
    return all(leaf.shape is not None and leaf.shape[:1] == (depth,) for leaf in leaves)
