"""Planning by random shooting."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pytorchrl.agent.planners.planner import Planner, Returns
from storages.component.hyper_parameters import Count


@dataclass(frozen=True)
class RandomShooting(Planner):
    """The best one of uniformly random action sequences.

    Nagabandi et al., "Neural Network Dynamics for Model-Based Deep Reinforcement Learning with Model-Free Fine-Tuning"
    (arXiv 1708.02596), section IV.C. Previous plans are not used.

    Args:
        num_samples: action sequences for each state (N).
    """

    num_samples: Count = 500

    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return the sampled sequence of the largest return, (E, H, A)."""
        num_states, *shape = before.shape
        sampled = before.new_empty((num_states, self.num_samples, *shape)).uniform_(-1, 1, generator=generator)
        best = returns(sampled).argmax(1)
        return sampled[torch.arange(num_states, device=best.device), best]
