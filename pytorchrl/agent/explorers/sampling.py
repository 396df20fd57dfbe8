"""Actions drawn from the network's output: from a distribution, or from action values by their size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer, has, misfit
from storages.hyper_parameters import NonNegativeOrSchedule


@dataclass(frozen=True)
class Sample(Explorer):
    """Actions drawn from the distribution that the network gives."""

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        distribution = output()
        self.check_output(distribution)
        action: Tensor = distribution.sample(exploration.generator)
        return action

    def check_output(self, output: Any) -> None:
        """Refuse what is no distribution."""
        if not has(output, "sample"):
            raise misfit(self, "a distribution", output)


@dataclass(frozen=True)
class Boltzmann(Explorer):
    """Actions drawn with probabilities proportional to ``exp(value / temperature)``.

    Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), section 2.8, where it is called the soft-max
    distribution.

    Args:
        temperature: in the unit of the values; the lower, the more often the greedy action; 0 is greedy.
    """

    temperature: NonNegativeOrSchedule

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, 1) int64, by the Gumbel trick: the largest of ``value + temperature * Gumbel noise``."""
        action_values = output()
        self.check_output(action_values)
        values: Tensor = action_values.values
        uniform = torch.empty_like(values, dtype=torch.float32)
        # Not from 0, whose noise is infinite and, at a temperature of 0, no number.
        uniform.uniform_(torch.finfo(torch.float32).tiny, 1, generator=exploration.generator)
        return (values - exploration.at(self.temperature) * uniform.log_().neg_().log_()).argmax(1, keepdim=True)

    def check_output(self, output: Any) -> None:
        """Refuse what has no values of countable actions."""
        if not has(output, "values"):
            raise misfit(self, "values of countable actions", output)
