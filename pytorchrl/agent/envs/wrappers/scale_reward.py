"""Rewards on a scale that a value function finds soon."""

from typing import Any, SupportsFloat

import gymnasium as gym


class ScaleReward(gym.RewardWrapper[Any, Any]):
    """Multiplies rewards, so that values are of the order of 1.

    Features of a memory lie in (-1, 1), and Adam moves each weight by about its learning rate: values of 100 take
    thousands of updates to be reached, and until then advantages say little. Evaluate in environments without it, so
    that returns are the environment's own.

    Args:
        env: whose rewards they are.
        factor: what they are multiplied by: with about as much a step, ``1 - gamma`` over that much.

    Raises:
        ValueError: the factor is not above 0, or the environment has goals: hindsight asks for rewards past a wrapper.
    """

    def __init__(self, env: gym.Env[Any, Any], factor: float) -> None:
        super().__init__(env)
        if not factor > 0:
            raise ValueError(f"ScaleReward: factor must be above 0, got {factor}")
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError("ScaleReward: the environment has goals, and its compute_reward would not be scaled")
        self._factor = factor

    def reward(self, reward: SupportsFloat) -> float:
        """The reward, scaled."""
        return self._factor * float(reward)
