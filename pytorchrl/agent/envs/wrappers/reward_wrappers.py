"""Wrappers that change rewards."""

from typing import Any, SupportsFloat

import gymnasium as gym


class ScaleReward(gym.RewardWrapper[Any, Any]):
    """Multiply rewards, so that values are of the order of 1.

    Features of a recurrent layer lie in (-1, 1), and Adam changes each weight by about its learning rate: values of 100
    take thousands of updates to be reached, and until then advantages are of little use. Evaluate in environments
    without it, so that returns are the environment's own.

    Args:
        env: whose rewards they are.
        factor: by which they are multiplied; ``(1 - gamma) / r`` suits rewards of about r in each step.

    Raises:
        ValueError: the factor is not above 0, or the environment has goals: hindsight bypasses wrappers of rewards.
    """

    def __init__(self, env: gym.Env[Any, Any], factor: float) -> None:
        super().__init__(env)
        if not factor > 0:
            raise ValueError(f"ScaleReward: factor must be above 0, got {factor}")
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError(
                "ScaleReward: the environment has goals, and its compute_reward, by which hindsight computes rewards, "
                "would not be scaled; leave ScaleReward out, or scale the rewards in compute_reward"
            )
        self._factor = factor

    def reward(self, reward: SupportsFloat) -> float:
        """Scale a reward."""
        return self._factor * float(reward)


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
