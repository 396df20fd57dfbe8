"""The reward function of goals, of an environment under wrappers."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import NormalizeReward

_NAME = "compute_reward"


def reward_of_goals(env: gym.Env[Any, Any]) -> Callable[..., Any] | None:
    """Return ``compute_reward(achieved_goal, desired_goal, info)`` of an environment, None where it has none.

    Raises:
        ValueError: a wrapper changes the rewards of steps, but not those of ``compute_reward``.
    """
    layer: Any = env
    changing: gym.Wrapper[Any, Any, Any, Any] | None = None
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, _NAME):
        if isinstance(layer, gym.RewardWrapper | NormalizeReward):
            changing = layer
        layer = layer.env
    found: Callable[..., Any] | None = getattr(layer, _NAME, None)
    if found is not None and changing is not None:
        raise ValueError(
            f"VecEnv: the wrapper {type(changing).__name__} changes rewards, but not {_NAME}(achieved_goal, "
            f"desired_goal, info), by which hindsight computes those of other goals; leave it out, change {_NAME}, or "
            f"define {_NAME} in the wrapper, too"
        )
    return found
