"""Action spaces, outputs and explorations for tests of explorers without networks and environments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.explorers import Exploration, Explorer


@dataclass
class Countable:
    """Actions (B, 1) int64, each one of ``n``."""

    n: int

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        return torch.from_numpy(random.integers(0, self.n, (num_envs, 1), np.int64))

    def clip(self, action: Tensor) -> Tensor:
        return action


@dataclass
class Bounded:
    """Actions (B, A) float32 in [-1, 1]."""

    size: int

    def uniform(self, random: np.random.Generator, num_envs: int) -> Tensor:
        return torch.from_numpy(random.uniform(-1, 1, (num_envs, self.size)).astype(np.float32))

    def clip(self, action: Tensor) -> Tensor:
        return action.clamp(-1, 1)


@dataclass
class Values:
    """Action values (B, n)."""

    values: Tensor

    def greedy(self) -> Tensor:
        return self.values.argmax(1, keepdim=True)


@dataclass
class Peaks:
    """Action values given only by their best actions (B, A), like quadratic ones."""

    peak: Tensor

    def greedy(self) -> Tensor:
        return self.peak


class Counted:
    """An output that counts how often it is computed."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        return self.output


def exploration_of(codec: Any, num_envs: int, seed: int = 0, **arguments: Any) -> Exploration:
    """An exploration on the CPU."""
    return Exploration(codec, num_envs, "cpu", seed, **arguments)


def acted(explorer: Explorer, output: Callable[[], Any] | Any, exploration: Exploration, times: int = 1) -> Tensor:
    """(times, E, *action): the actions of a number of steps with the same output."""
    compute = output if isinstance(output, Counted) else lambda: output
    actions = []
    for _ in range(times):
        actions.append(explorer.act(compute, exploration))
        exploration.steps += exploration.num_envs
    return torch.stack(actions)
