"""Tasks of a few states in which the right action is the number of the state."""

from typing import Any

import gymnasium as gym
import numpy as np

STEPS = 40
"""Of an episode that does not terminate."""


class Ring(gym.Env[Any, Any]):
    """A cyclic task without an end: the right action goes on round three states, and a round pays 1."""

    number = 3
    best = 13.0
    """Return of the policy that is always right."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 1, (self.number,), np.float32)
        self.action_space = gym.spaces.Discrete(self.number)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.made = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.eye(self.number, dtype=np.float32)[self.state]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.made += 1
        reward, terminated = self.move(action == self.state)
        return self.seen(), reward, terminated, self.made >= STEPS, {}

    def move(self, right: bool) -> tuple[float, bool]:
        reward = float(right and self.state == self.number - 1)
        self.state = (self.state + right) % self.number
        return reward, False


class Staying(Ring):
    """An endless task: the last of five states pays 1 a step, and a wrong action there leads back to the first."""

    number = 5
    best = 37.0

    def move(self, right: bool) -> tuple[float, bool]:
        last = self.number - 1
        if self.state < last:
            self.state += right
        elif not right:
            self.state = 0
        return float(self.state == last), False


class Failing(Ring):
    """An episodic task: a ring of five states in which a wrong action ends the episode, and others pay 1."""

    number = 5
    best = 40.0

    def move(self, right: bool) -> tuple[float, bool]:
        self.state = (self.state + right) % self.number
        return float(right), not right


def right_actions(seen: Any) -> Any:
    """Return the right actions (E, 1) by observations (E, n)."""
    return seen.argmax(1)[:, None]
