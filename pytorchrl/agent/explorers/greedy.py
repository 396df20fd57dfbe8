"""The best action, always or most of the time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer, best_action, has, misfit
from storages.hyper_parameters import UnitIntervalOrSchedule


@dataclass(frozen=True)
class Greedy(Explorer):
    """The best action of every output; for networks that explore by their own noise."""

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        return best_action(output())

    def check_output(self, output: Any) -> None:
        """Refuse an output that has no best action."""
        best_action(output)


@dataclass(frozen=True)
class EpsilonGreedy(Explorer):
    """The greedy action of action values, and a uniformly random one with probability epsilon in each environment.

    Args:
        epsilon: probability of a random action.
    """

    epsilon: UnitIntervalOrSchedule

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action); the output is not computed where all environments explore."""
        explore = exploration.random.random((exploration.num_envs, 1)) < exploration.at(self.epsilon)
        exploring = np.count_nonzero(explore)
        if exploring == exploration.num_envs:
            return exploration.uniform_actions()
        values = output()
        try:
            greedy: Tensor = values.greedy()
        except AttributeError:
            self.check_output(values)
            raise
        if not exploring:
            return greedy
        chosen = torch.from_numpy(explore).to(greedy.device).view(-1, *[1] * (greedy.ndim - 1))
        return torch.where(chosen, exploration.uniform_actions(), greedy)

    def check_output(self, output: Any) -> None:
        """Refuse what is no action values."""
        if not has(output, "greedy"):
            raise misfit(self, "action values", output)
