"""Rewards that are rare: one for reaching the end of an episode, and no other."""

from typing import Any

import gymnasium as gym


class TerminalReward(gym.Wrapper[Any, Any, Any, Any]):
    """Pays 1 for the step with which an episode terminates, and 0 for all others.

    Of an environment whose episodes terminate where its goal is reached, such as MountainCar-v0, it makes one with
    sparse rewards. The returns that are logged and evaluated are the environment's own.

    Args:
        env: whose rewards are not used.

    Raises:
        ValueError: the environment has goals: hindsight asks for rewards past a wrapper.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError("TerminalReward: the environment has goals, and its compute_reward would not be replaced")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the environment, with the other reward."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info
