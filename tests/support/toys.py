"""Small environments with predictable observations and rewards, and random ones."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counter(gym.Env[Any, Any]):
    """Observes the number of steps since the reset; ends after ``length`` steps by termination or truncation."""

    def __init__(self, kind: str = "vector", length: int = 3, end: str = "terminated", actions: Any = None) -> None:
        self.observation_space = {
            "vector": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "image": spaces.Box(0, 255, (3, 40, 40), np.uint8),
            "discrete": spaces.Discrete(1000),
            "dict": spaces.Dict(
                {
                    "count": spaces.Box(-np.inf, np.inf, (2,), np.float32),
                    "pixels": spaces.Box(0, 255, (40, 40, 1), np.uint8),
                }
            ),
        }[kind]
        self.action_space = actions if actions is not None else spaces.Discrete(2)
        self.kind, self.length, self.end = kind, length, end
        self.count = 0
        self.actions: list[Any] = []

    def _observation(self) -> Any:
        vector = np.full(2, self.count, np.float32)
        return {
            "vector": vector,
            "image": np.full((3, 40, 40), self.count % 256, np.uint8),
            "discrete": self.count,
            "dict": {"count": vector, "pixels": np.full((40, 40, 1), self.count % 256, np.uint8)},
        }[self.kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.count += 1
        over = self.count >= self.length
        return (
            self._observation(),
            float(self.count),
            over and self.end == "terminated",
            over and self.end == "truncated",
            {},
        )


class Noise(gym.Env[Any, Any]):
    """Random observations and rewards from its own generator; ends at random."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        draw = self.np_random.random()
        observation = self.np_random.normal(size=3).astype(np.float32)
        return observation, float(draw), draw < 0.1, draw > 0.9, {}


class RandomEnds(gym.Env[Any, Any]):
    """Random observations and rewards; a third of the steps terminate or truncate the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        terminated, truncated = self.np_random.random(2) < 1 / 6
        return self._seen(), float(self.np_random.normal(scale=3)), bool(terminated), bool(truncated), {}

    def _seen(self) -> Any:
        return self.np_random.normal(size=3).astype(np.float32)


def number_of_copy(folder: Path) -> int:
    """The number of copies made before, by any process, counting this one from now on."""
    number = 0
    while True:
        try:
            (folder / f"copy{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def continuous(low: float = -2.0, high: float = 2.0, size: int = 1) -> spaces.Box:
    return spaces.Box(low, high, (size,), np.float32)
