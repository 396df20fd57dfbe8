"""Actions drawn from the network's output: from a distribution, or from action values by their size."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.explorers.explorer import Exploration, Explorer, has, misfit
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule


@dataclass(frozen=True)
class Sample(Explorer):
    """Actions drawn from the distribution that the network gives."""

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        distribution = output()
        self.check_output(distribution)
        action: Tensor = distribution.sample(exploration.generator)
        return action

    def act_with_log_prob(self, distribution: Distribution, exploration: Exploration) -> tuple[Tensor, Tensor]:
        """Draw both at once, unless ``log_prob`` of the action differs, as near the bounds of a squashed normal."""
        if distribution.has_rsample:
            return super().act_with_log_prob(distribution, exploration)
        return distribution.sample_with_log_prob(exploration.generator)

    def check_output(self, output: Any) -> None:
        """Refuse what is no distribution."""
        if not has(output, "sample"):
            raise misfit(self, "a distribution", output)


@dataclass(frozen=True)
class SampleByMatrix(Explorer):
    """Actions drawn from a state-dependent distribution by a matrix of noise, which each environment keeps for a while.

    Raffin et al., "Smooth Exploration for Robotic Reinforcement Learning" (arXiv 2005.05719), section 3.

    Args:
        every: steps of each environment between matrices.
    """

    every: Count

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        distribution = output()
        self.check_output(distribution)
        noise = exploration.state.get(_MATRIX)
        # By progress, so that all environments change together and no device is asked.
        if noise is None or exploration.steps // exploration.num_envs % self.every == 0:
            shape = distribution.noise_shape
            noise = torch.empty(shape, device=exploration.device).normal_(generator=exploration.generator)
            exploration.state[_MATRIX] = noise
        action: Tensor = distribution.under(noise)
        return action

    def check_output(self, output: Any) -> None:
        """Refuse what does not draw by a matrix."""
        if not has(output, "under"):
            raise misfit(self, "a distribution with state-dependent noise, such as that of GSDEPolicy", output)


_MATRIX = "SampleByMatrix"


def drawing_from(head: DistributionHead) -> Explorer:
    """The explorer that draws actions as the distributions of a head do."""
    return Sample() if head.keeps_noise_for is None else SampleByMatrix(head.keeps_noise_for)


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
