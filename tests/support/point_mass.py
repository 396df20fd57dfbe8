"""A point mass on a line, which actions accelerate: quickly solved by planning with a model."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

LENGTH = 25


class PointMass(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Observations are position and velocity, within [-1, 1]; the reward is minus the squared distance from 0."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._steps = 0
        return self._state.copy(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        position, velocity = self._state
        velocity = np.clip(velocity + 0.2 * float(action[0]), -1, 1)
        self._state = np.array([np.clip(position + 0.2 * velocity, -1, 1), velocity], np.float32)
        self._steps += 1
        return self._state.copy(), -(float(self._state[0]) ** 2), False, self._steps == LENGTH, {}
