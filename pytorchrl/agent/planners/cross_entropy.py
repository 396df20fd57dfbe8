"""The cross-entropy method, and planning by it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.planners.planner import Planner, Returns
from storages.component.hyper_parameters import Count, HalfOpenUnitInterval, Positive


class Found(NamedTuple):
    """Result of a search by the cross-entropy method, (B, A) each."""

    best: Tensor
    """The sample of the largest value."""
    mean: Tensor
    """The mean of the last distribution."""


@dataclass(frozen=True)
class CrossEntropyMethod:
    """Search for vectors of the largest value, by samples of a normal distribution that is fitted to the best ones.

    Kalashnikov et al., "QT-Opt" (arXiv 1806.10293), section 4.2. Samples are clipped to [-1, 1].

    Args:
        num_iterations: distributions that are sampled from.
        num_samples: of each distribution, for each row (N).
        num_elites: samples of the largest value, to which the next distribution is fitted (M).
        momentum: weight that a distribution's mean and standard deviation keep in the next one.
    """

    num_iterations: int
    num_samples: int
    num_elites: int
    momentum: float = 0.0

    @torch.no_grad()
    def __call__(
        self, values: Callable[[Tensor], Tensor], mean: Tensor, std: Tensor, generator: torch.Generator
    ) -> Found:
        """Return the best of all samples, and the mean of the last distribution.

        Args:
            values: from vectors (B, num_samples, A) to their values (B, num_samples).
            mean: (B, A), of the first distribution.
            std: (B, A), standard deviation of the first distribution.
            generator: of the samples.
        """
        rows, size = mean.shape
        best, best_value = torch.zeros_like(mean), mean.new_full((rows, 1), -torch.inf)
        mean, std = mean.unsqueeze(1), std.unsqueeze(1)
        for _ in range(self.num_iterations):
            noise = mean.new_empty((rows, self.num_samples, size)).normal_(generator=generator)
            sampled = (mean + std * noise).clamp(-1, 1)
            largest, chosen = values(sampled).topk(self.num_elites, dim=1)
            # By `take_along_dim`, an exported network would be for a fixed number of rows.
            elites = sampled.gather(1, chosen.unsqueeze(2).expand(-1, -1, size))
            mean = torch.lerp(elites.mean(1, keepdim=True), mean, self.momentum)
            std = torch.lerp(elites.std(1, correction=0, keepdim=True), std, self.momentum)
            best = torch.where(largest[:, :1] > best_value, elites[:, 0], best)
            best_value = torch.maximum(largest[:, :1], best_value)
        return Found(best, mean.squeeze(1))


@dataclass(frozen=True)
class CrossEntropy(Planner):
    """The cross-entropy method over action sequences.

    Chua et al., "Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models" (arXiv
    1805.12114), section 5.3: the plan is the mean of the last distribution.

    Args:
        num_iterations: distributions that sequences are sampled from.
        num_samples: action sequences of each distribution, for each state (N).
        num_elites: sequences of the largest return, to which the next distribution is fitted.
        initial_std: standard deviation of each action in the first distribution.
        momentum: weight that a distribution's mean and standard deviation keep in the next one.

    Raises:
        ValueError: there are more elites than samples.
    """

    num_iterations: Count = 4
    num_samples: Count = 128
    num_elites: Count = 16
    initial_std: Positive = 0.5
    momentum: HalfOpenUnitInterval = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_elites > self.num_samples:
            raise ValueError(
                f"{type(self).__name__}: num_elites must be at most num_samples={self.num_samples}, got "
                f"{self.num_elites}"
            )

    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean of the last distribution, (E, H, A)."""
        shape = before.shape[1:]

        def values(sampled: Tensor) -> Tensor:
            return returns(sampled.view(*sampled.shape[:2], *shape))

        search = CrossEntropyMethod(self.num_iterations, self.num_samples, self.num_elites, self.momentum)
        mean = before.flatten(1)
        return search(values, mean, torch.full_like(mean, self.initial_std), generator).mean.view_as(before)
