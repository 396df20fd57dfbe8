"""Planning by averages that are weighted by returns."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pytorchrl.agent.planners.planner import Planner, Returns
from storages.component.hyper_parameters import Count, HalfOpenUnitInterval, Positive


@dataclass(frozen=True)
class PathIntegral(Planner):
    """Model predictive path integral control (MPPI): the average of noisy sequences, weighted by exponential returns.

    Williams et al., "Information Theoretic MPC for Model-Based Reinforcement Learning" (ICRA 2017), algorithm 2. With
    ``smoothing``, the noise is filtered as in Nagabandi et al., "Deep Dynamics Models for Learning Dexterous
    Manipulation" (arXiv 1909.11652), equations 3 and 4, whose beta is 1 - smoothing.

    Args:
        num_iterations: times that the sequence is improved.
        num_samples: action sequences for each state in an iteration (N).
        noise: standard deviation of the noise on each action.
        smoothing: weight of the previous step's noise in the noise of a step; 0 for independent noise.
        temperature: difference of returns by which weights differ by a factor of e.
    """

    num_iterations: Count = 1
    num_samples: Count = 500
    noise: Positive = 0.5
    smoothing: HalfOpenUnitInterval = 0.0
    temperature: Positive = 1.0

    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return the weighted average of the last iteration, (E, H, A)."""
        num_states, horizon, size = before.shape
        plan = before
        for _ in range(self.num_iterations):
            noise = plan.new_empty((num_states, self.num_samples, horizon, size))
            noise.normal_(0, self.noise, generator=generator)
            sampled = (plan.unsqueeze(1) + self._filtered(noise)).clamp(-1, 1)
            weights = (returns(sampled) / self.temperature).softmax(1)
            plan = torch.einsum("en,enha->eha", weights, sampled)
        return plan

    def _filtered(self, noise: Tensor) -> Tensor:
        """Return noise (E, N, H, A) in which each step's is averaged with that of the step before."""
        if not self.smoothing:
            return noise
        steps, last = [], torch.zeros_like(noise[:, :, 0])
        for step in noise.unbind(2):
            last = torch.lerp(step, last, self.smoothing)
            steps.append(last)
        return torch.stack(steps, 2)
