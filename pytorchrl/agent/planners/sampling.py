"""Planners that search by samples of action sequences."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor

from storages.component.hyper_parameters import Count, CountOrZero, HalfOpenUnitInterval, Positive
from storages.component.setting import Setting

Returns: TypeAlias = Callable[[Tensor], Tensor]
"""From action sequences (E, N, H, A) to their expected returns (E, N), N sequences for each of E states."""
Propose: TypeAlias = Callable[[int], Tensor]
"""From a number P to as many action sequences for each state, (E, P, H, A), such as those of a policy."""


class Plan(NamedTuple):
    """Result of a search, for each of E states."""

    sequence: Tensor
    """(E, H, A): from which the search of the next step starts, without its first action."""
    action: Tensor
    """(E, A): to take now."""
    std: Tensor | None
    """(E, A): standard deviation of the action, to explore; None where the planner has none."""


@dataclass(frozen=True)
class Planner(Setting, ABC):
    """A search for the action sequence of the largest return, given a function that estimates returns.

    A subclass is a frozen dataclass that implements :meth:`plan`. Random numbers come from the generator alone.

    Args:
        horizon: actions of a sequence (H).
    """

    is_stochastic: ClassVar[bool] = False
    """Whether plans of :meth:`search` have a standard deviation."""

    horizon: Count = 15

    @abstractmethod
    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return an action sequence (E, H, A) within [-1, 1] for each of E states, not modifying ``before``.

        Args:
            returns: estimates the returns of action sequences.
            before: (E, H, A), sequences from which the search starts: those of the previous step without their first
                action, with zeros for what was not planned.
            generator: of the samples, on the device of ``before``.
        """

    def search(
        self, returns: Returns, before: Tensor, generator: torch.Generator, propose: Propose | None = None
    ) -> Plan:
        """Return the sequence of :meth:`plan`, of which the first action is taken.

        A subclass overrides it if it takes another action, or compares its samples with sequences of others.

        Args:
            returns: as of :meth:`plan`.
            before: as of :meth:`plan`.
            generator: as of :meth:`plan`.
            propose: makes further sequences to compare; None for none. It is called once, if at all.
        """
        sequence = self.plan(returns, before, generator)
        return Plan(sequence, sequence[:, 0], None)


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
        """Return noise (E, N, H, A), each step's averaged with that of the step before."""
        if not self.smoothing:
            return noise
        steps, last = [], torch.zeros_like(noise[:, :, 0])
        for step in noise.unbind(2):
            last = torch.lerp(step, last, self.smoothing)
            steps.append(last)
        return torch.stack(steps, 2)


@dataclass(frozen=True)
class ElitePathIntegral(Planner):
    """Path integral control by elites, to which mean and standard deviation of the next samples are fitted.

    Hansen et al., "Temporal Difference Learning for Model Predictive Control" (TD-MPC, arXiv 2203.04955), algorithm 1,
    as in TD-MPC2 (arXiv 2310.16828). Proposed sequences are among the samples of every iteration. The action is that of
    an elite, which is drawn by its weight; its standard deviation is the last one.

    Args:
        num_iterations: times that mean and standard deviation are fitted.
        num_samples: action sequences for each state in an iteration, with those proposed (N).
        num_elites: sequences of the largest return, which are averaged.
        num_proposals: sequences that are proposed by others, such as a policy, if any are.
        temperature: difference of returns by which weights differ by a factor of e; the papers' is its inverse.
        smallest_std: lower bound of the standard deviation of an action.
        largest_std: upper bound, which the first iteration has.

    Raises:
        ValueError: there are more elites than samples, no samples beside proposals, or the bounds exclude each other.
    """

    is_stochastic = True

    horizon: Count = 3
    num_iterations: Count = 6
    num_samples: Count = 512
    num_elites: Count = 64
    num_proposals: CountOrZero = 24
    temperature: Positive = 2.0
    smallest_std: Positive = 0.05
    largest_std: Positive = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_proposals >= self.num_samples:
            raise ValueError(
                f"{type(self).__name__}: num_proposals must be less than num_samples={self.num_samples}, got "
                f"{self.num_proposals}"
            )
        check_elites(self, self.num_elites, self.num_samples)
        if self.smallest_std > self.largest_std:
            raise ValueError(
                f"{type(self).__name__}: smallest_std must be at most largest_std={self.largest_std}, got "
                f"{self.smallest_std}"
            )

    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return the weighted average of the last elites, (E, H, A)."""
        return self.search(returns, before, generator).sequence

    def search(
        self, returns: Returns, before: Tensor, generator: torch.Generator, propose: Propose | None = None
    ) -> Plan:
        """Return the weighted average of the last elites, and the first action of one of them."""
        num_states, horizon, size = before.shape
        proposed = before.new_empty((num_states, 0, horizon, size))
        if propose is not None and self.num_proposals:
            proposed = propose(self.num_proposals)
        shape = num_states, self.num_samples - proposed.shape[1], horizon, size
        mean, std = before, torch.full_like(before, self.largest_std)
        for _ in range(self.num_iterations):
            noise = before.new_empty(shape).normal_(generator=generator)
            sampled = torch.cat([proposed, (mean.unsqueeze(1) + std.unsqueeze(1) * noise).clamp(-1, 1)], 1)
            largest, chosen = returns(sampled).topk(self.num_elites, dim=1)
            elites = sampled.take_along_dim(chosen[:, :, None, None], dim=1)
            weights = (largest / self.temperature).softmax(1)
            mean = torch.einsum("en,enha->eha", weights, elites)
            variance = torch.einsum("en,enha->eha", weights, (elites - mean.unsqueeze(1)).square())
            std = variance.sqrt().clamp(self.smallest_std, self.largest_std)
        # By the Gumbel-max trick. Above 0, where the noise would be infinite.
        uniform = torch.empty_like(weights).uniform_(torch.finfo(weights.dtype).tiny, 1, generator=generator)
        drawn = (weights.log() - uniform.log_().neg_().log_()).argmax(1)
        return Plan(mean, elites[torch.arange(num_states, device=drawn.device), drawn, 0], std[:, 0])


def check_elites(planner: Planner, num_elites: int, num_samples: int) -> None:
    """Check that a planner has as many samples as elites.

    Raises:
        ValueError: it has fewer.
    """
    if num_elites > num_samples:
        raise ValueError(
            f"{type(planner).__name__}: num_elites must be at most num_samples={num_samples}, got {num_elites}"
        )


class SearchResult(NamedTuple):
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
    ) -> SearchResult:
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
        return SearchResult(best, mean.squeeze(1))


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
        check_elites(self, self.num_elites, self.num_samples)

    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mean of the last distribution, (E, H, A)."""
        shape = before.shape[1:]

        def values(sampled: Tensor) -> Tensor:
            return returns(sampled.view(*sampled.shape[:2], *shape))

        search = CrossEntropyMethod(self.num_iterations, self.num_samples, self.num_elites, self.momentum)
        mean = before.flatten(1)
        return search(values, mean, torch.full_like(mean, self.initial_std), generator).mean.view_as(before)
