"""The bit-flipping environment, whose sparse rewards need hindsight experience replay."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class BitFlipping(gym.Env[dict[str, NDArray[np.float32]], np.int64]):
    """``n`` bits, ``n`` actions that flip one each, and a random pattern to reach within ``n`` steps.

    Andrychowicz et al., "Hindsight Experience Replay" (arXiv 1707.01495), section 3.1: the reward is 0 where the
    bits equal the pattern and -1 otherwise, and random flips hardly ever reach it. An episode always takes ``n``
    steps, so that returns show how soon the pattern was reached; ``info["is_success"]`` is whether it is reached now.
    ``gymnasium.make("pytorchrl/BitFlipping-v0", n=15)`` makes one too.

    Args:
        n: number of bits.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own way

    def __init__(self, n: int = 15) -> None:
        bits = spaces.Box(0, 1, (n,), np.float32)
        self.observation_space: spaces.Space[Any] = spaces.Dict(
            {"observation": bits, "achieved_goal": bits, "desired_goal": bits}
        )
        self.action_space = spaces.Discrete(n)
        self._n = n
        self._steps = 0
        self._bits = np.zeros(n, np.float32)
        self._goal = np.zeros(n, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
        """Begin with random bits and a random pattern."""
        super().reset(seed=seed)
        self._steps = 0
        self._bits, self._goal = self.np_random.integers(0, 2, (2, self._n)).astype(np.float32)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[dict[str, NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        """Flip a bit; truncated after ``n`` steps, never terminated."""
        self._bits[action] = 1 - self._bits[action]
        self._steps += 1
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        return self._observation(), reward, False, self._steps >= self._n, {"is_success": reward == 0}

    def compute_reward(
        self, achieved_goal: NDArray[np.float32], desired_goal: NDArray[np.float32], info: Mapping[str, Any]
    ) -> NDArray[np.float32]:
        """Return 0 where patterns (..., n) are equal, else -1: (...)."""
        equal: NDArray[np.bool_] = (achieved_goal == desired_goal).all(axis=-1)
        return equal.astype(np.float32) - 1

    def _observation(self) -> dict[str, NDArray[np.float32]]:
        return {
            "observation": self._bits.copy(),
            "achieved_goal": self._bits.copy(),
            "desired_goal": self._goal.copy(),
        }
