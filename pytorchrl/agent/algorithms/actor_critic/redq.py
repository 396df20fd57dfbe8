"""REDQ: SAC with many critics, few of which are drawn for each target, and many updates a step."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import average
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from storages.component.hyper_parameters import Count


class REDQ(SAC):
    """Chen et al., "Randomized Ensembled Double Q-Learning" (arXiv 2101.05982), algorithm 1.

    The policy climbs the mean of all critics, once in as many updates as a step has, by which the number of updates
    does not tell on it.

    Args:
        num_target_critics: critics drawn for the targets of a batch, the smallest of whose values counts (M).

    Raises:
        ValueError: more critics are to be drawn than there are.
    """

    unchangeable = SAC.unchangeable | {"num_target_critics"}

    num_critics: Count = 10
    num_target_critics: Count = 2
    num_mini_batch: Count = 20
    policy_delay: Count = 20

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse to draw more critics than there are."""
        super().check_hyper_parameters(hyper_parameters)
        number, drawn = hyper_parameters["num_critics"], hyper_parameters["num_target_critics"]
        if drawn > number:
            raise ValueError(f"{cls.__name__}: num_target_critics must be at most num_critics={number}, got {drawn}")

    def build(self) -> None:
        """As SAC's, and a generator of the critics drawn."""
        super().build()
        # Which networks compute is for the processor to know, without waiting for the device.
        self.subset_generator = torch.Generator()

    def target_values(self, view: View, action: Tensor) -> Sequence[Value]:
        """Those of a few critics, drawn without replacement, of actions (N, *action)."""
        drawn = torch.randperm(self.num_critics, generator=self.subset_generator)[: self.num_target_critics]
        return [self.target_critics[position](view, action) for position in drawn.tolist()]

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """The mean of all critics'."""
        return average(values)

    def _generators(self) -> tuple[torch.Generator, ...]:
        return *super()._generators(), self.subset_generator
