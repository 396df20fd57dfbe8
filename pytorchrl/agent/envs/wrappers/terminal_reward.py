"""Sparse rewards: 1 for the termination of an episode, and 0 otherwise."""

from typing import Any

import gymnasium as gym


class TerminalReward(gym.Wrapper[Any, Any, Any, Any]):
    """Replace rewards by 1 for the step that terminates an episode, and 0 for all others.

    It gives sparse rewards to an environment whose episodes terminate where the goal is reached, such as
    MountainCar-v0. The returns that are logged and evaluated are the environment's own.

    Args:
        env: whose rewards are not used.

    Raises:
        ValueError: the environment has goals: hindsight bypasses wrappers of rewards.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError(
                "TerminalReward: the environment has goals, and its compute_reward, by which hindsight computes "
                "rewards, would not be replaced; leave TerminalReward out, or change compute_reward"
            )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, with the reward replaced."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(terminated), terminated, truncated, info
