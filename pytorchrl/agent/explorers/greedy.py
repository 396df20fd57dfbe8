"""Greedy and epsilon-greedy exploration, and random actions at the beginning of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer, best_action, has_attribute, output_error
from storages.component.hyper_parameters import CountOrZero, NonNegative, UnitIntervalOrSchedule


@dataclass(frozen=True)
class Greedy(Explorer):
    """The greedy action, always; for networks that explore by their own noise."""

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        return best_action(output())

    def check_output(self, output: Any) -> None:
        """Refuse an output that has no greedy action."""
        best_action(output)


@dataclass(frozen=True)
class EpsilonGreedy(Explorer):
    """Epsilon-greedy: a uniformly random action with probability epsilon in each environment, else the greedy one.

    Args:
        epsilon: probability of a random action.
    """

    epsilon: UnitIntervalOrSchedule

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action); the output is not computed where all environments explore."""
        explore = exploration.random.random((exploration.num_envs, 1)) < self.probability(exploration)
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

    def probability(self, exploration: Exploration) -> float | NDArray[np.float64]:
        """Return the probability of a random action, one number for all environments or (E, 1)."""
        return exploration.at(self.epsilon)

    def log_prob(self, output: Any, action: Tensor, exploration: Exploration) -> Tensor:
        """(E, 1), of discrete actions: epsilon over the number allowed, and 1 - epsilon for the greedy one."""
        self.check_output(output)
        if not has_attribute(output, "values"):
            return super().log_prob(output, action, exploration)
        epsilon = torch.as_tensor(self.probability(exploration), dtype=torch.float64, device=action.device)
        allowed = exploration.allowed
        uniform = 1 / torch.as_tensor(output.values.shape[1], dtype=torch.float64, device=action.device)
        if allowed is not None:
            flags = allowed().flags.double()
            uniform = flags.gather(1, action) / flags.sum(1, keepdim=True)
        probability: Tensor = epsilon * uniform + (1 - epsilon) * (action == output.greedy())
        return probability.log()

    def check_output(self, output: Any) -> None:
        """Refuse an output that is not action values."""
        if not has_attribute(output, "greedy"):
            raise output_error(self, "action values", output)


@dataclass(frozen=True)
class ApeXEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy with a different probability in each environment, from epsilon down to nearly 0.

    Horgan et al., "Distributed Prioritized Experience Replay" (Ape-X, arXiv 1803.00933), section 4.1: environment i of
    N has ``epsilon ** (1 + i / (N - 1) * alpha)``; a single one has ``epsilon``. N counts the environments of all
    collectors of the run.

    Args:
        epsilon: probability of a random action in the first environment.
        alpha: the last environment's probability is ``epsilon ** (1 + alpha)``.
    """

    epsilon: UnitIntervalOrSchedule = 0.4
    alpha: NonNegative = 7.0

    def probability(self, exploration: Exploration) -> NDArray[np.float64]:
        """Return the probability of a random action in each environment, (E, 1)."""
        powers = _powers(exploration.at(self.epsilon), self.alpha, exploration.among)
        return powers[exploration.position : exploration.position + exploration.num_envs]


@lru_cache(maxsize=16)
def _powers(epsilon: float, alpha: float, num_envs: int) -> NDArray[np.float64]:
    powers: NDArray[np.float64] = epsilon ** np.linspace(1, 1 + alpha, num_envs)[:, None]
    powers.setflags(write=False)  # the cached array is shared
    return powers


@dataclass(frozen=True)
class UniformUntil(Explorer):
    """Uniformly random actions, or those of an explorer, for a number of transitions, then another explorer.

    Args:
        steps: environment transitions, of all environments together.
        then: explorer after these.
        first: explorer of these; None draws uniformly random actions.
    """

    steps: CountOrZero
    then: Explorer
    first: Explorer | None = None

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action); the output is not computed for random actions."""
        if exploration.steps < self.steps:
            return exploration.uniform_actions() if self.first is None else self.first.act(output, exploration)
        return self.then.act(output, exploration)

    def log_prob(self, output: Any, action: Tensor, exploration: Exploration) -> Tensor:
        """(E, 1), of the explorer after these steps."""
        if exploration.steps < self.steps:
            return super().log_prob(output, action, exploration)
        return self.then.log_prob(output, action, exploration)

    def check_output(self, output: Any) -> None:
        """Refuse an output that one of the explorers cannot use."""
        for explorer in filter(None, (self.first, self.then)):
            explorer.check_output(output)
