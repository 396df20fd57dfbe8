"""Sampling of actions from a distribution, or from action values by a softmax."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.explorers.explorer import Exploration, Explorer, has_attribute, output_error
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule


@dataclass(frozen=True)
class Sample(Explorer):
    """Actions sampled from the policy's distribution."""

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        distribution = output()
        self.check_output(distribution)
        action: Tensor = distribution.sample(exploration.generator)
        return action

    def log_prob(self, output: Any, action: Tensor, exploration: Exploration) -> Tensor:
        """(E, 1), under the distribution."""
        self.check_output(output)
        log_prob: Tensor = output.log_prob(action)
        return log_prob

    def act_with_log_prob(self, distribution: Distribution, exploration: Exploration) -> tuple[Tensor, Tensor]:
        """Sample actions and compute their log probabilities (E, 1), at once where ``log_prob`` would give the same.

        It would not near the bounds of a squashed Gaussian, nor of the actions of a subclass that chooses others.
        """
        if distribution.has_rsample or type(self).act is not Sample.act:
            return super().act_with_log_prob(distribution, exploration)
        return distribution.sample_with_log_prob(exploration.generator)

    def check_output(self, output: Any) -> None:
        """Refuse an output that is not a distribution."""
        if not has_attribute(output, "sample"):
            raise output_error(self, "a distribution", output)


@dataclass(frozen=True)
class SampleByMatrix(Explorer):
    """Generalised state-dependent exploration (gSDE): each environment keeps its noise matrix for some steps.

    Raffin et al., "Smooth Exploration for Robotic Reinforcement Learning" (arXiv 2005.05719), section 3.

    Args:
        every: steps of each environment between draws of the matrix.
    """

    every: Count

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        distribution = output()
        self.check_output(distribution)
        noise, used = exploration.state.get(_MATRIX), exploration.state.get(_USED)
        # Counted here: an evaluation sets the steps of the run once, and the count of several collectors jumps.
        times = self.every if used is None else int(used[0])
        if noise is None or times >= self.every:
            shape = distribution.noise_shape
            noise = torch.empty(shape, device=exploration.device).normal_(generator=exploration.generator)
            exploration.state[_MATRIX], times = noise, 0
        # On the host, so that reading it does not wait for the device.
        exploration.state[_USED] = torch.full((exploration.num_envs,), times + 1)
        action: Tensor = distribution.under(noise)
        return action

    def check_output(self, output: Any) -> None:
        """Refuse an output without state-dependent noise."""
        if not has_attribute(output, "under"):
            raise output_error(self, "a distribution with state-dependent noise, such as that of GSDEPolicy", output)


_MATRIX = "SampleByMatrix"
_USED = "SampleByMatrix/used"
"""How many actions the matrix was used for."""


def explorer_for(head: DistributionHead) -> Explorer:
    """Return the explorer that samples from the distributions of a head."""
    return Sample() if head.noise_interval is None else SampleByMatrix(head.noise_interval)


@dataclass(frozen=True)
class Boltzmann(Explorer):
    """Actions sampled with probabilities proportional to ``exp(value / temperature)``.

    Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), section 2.8, where it is called the soft-max
    distribution.

    Args:
        temperature: in the unit of the values; the lower, the more often the greedy action; 0 is greedy.
    """

    temperature: NonNegativeOrSchedule

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, 1) int64, by the Gumbel-max trick: the largest of ``value + temperature * Gumbel noise``."""
        action_values = output()
        self.check_output(action_values)
        values: Tensor = action_values.values
        uniform = torch.empty_like(values, dtype=torch.float32)
        # Above 0, where the noise would be infinite, and NaN at a temperature of 0.
        uniform.uniform_(torch.finfo(torch.float32).tiny, 1, generator=exploration.generator)
        return (values - exploration.at(self.temperature) * uniform.log_().neg_().log_()).argmax(1, keepdim=True)

    def log_prob(self, output: Any, action: Tensor, exploration: Exploration) -> Tensor:
        """(E, 1), of the softmax of the values."""
        self.check_output(output)
        temperature = exploration.at(self.temperature)
        if not temperature:
            return super().log_prob(output, action, exploration)
        values: Tensor = output.values
        return (values / temperature).log_softmax(1).gather(1, action)

    def check_output(self, output: Any) -> None:
        """Refuse an output without values of discrete actions."""
        if not has_attribute(output, "values"):
            raise output_error(self, "values of discrete actions", output)
