"""Pendulum-v1 with the terms of its cost in its infos, for algorithms that learn from components of rewards."""

from typing import Any

import gymnasium as gym
import numpy as np

COMPONENTS = ("reward_angle", "reward_speed", "reward_torque")


class PendulumCosts(gym.Wrapper[Any, Any, Any, Any]):
    """Adds the three terms of the reward of a step to its info, under the names in ``COMPONENTS``."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; the terms depend on the state before the step."""
        env: Any = self.unwrapped
        angle, speed = env.state
        distance = (angle + np.pi) % (2 * np.pi) - np.pi
        observation, reward, terminated, truncated, info = self.env.step(action)
        terms = (-(distance**2), -0.1 * speed**2, -0.001 * float(env.last_u) ** 2)
        return observation, reward, terminated, truncated, info | dict(zip(COMPONENTS, map(float, terms), strict=True))
