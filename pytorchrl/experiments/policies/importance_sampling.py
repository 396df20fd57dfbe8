"""Off-policy evaluation by importance sampling, from episodes with the probabilities of their actions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.bootstrap import Estimate, interval

Floats = NDArray[np.float64]
_RESAMPLES, _FEWEST_RESAMPLES = 2_000, 200
_MOST_NUMBERS = 10_000_000
"""Of an array of resamples, which bounds their number for many episodes."""


@dataclass(frozen=True)
class WeightedEpisode:
    """An episode of L steps, with the probabilities and values that importance sampling needs.

    Args:
        ratios: (L,), probability of each action under the policy that is evaluated, divided by that under the policy
            that made the data.
        rewards: (L,).
        values: (L,), value of each observation under the policy that is evaluated, as by fitted Q evaluation.
        action_values: (L,), value of each observation and its action.
        value_after: value of the observation after the last step; 0 where the episode terminated.
    """

    ratios: Floats
    rewards: Floats
    values: Floats
    action_values: Floats
    value_after: float


@dataclass(frozen=True)
class ImportanceEstimates:
    """Estimates of the discounted return of a policy, each with a 95% bootstrap interval over episodes."""

    ordinary: Estimate
    """Per-decision importance sampling: unbiased where the probabilities are right, with a large variance (Precup et
    al., "Eligibility Traces for Off-Policy Policy Evaluation", 2000, section 3)."""
    weighted: Estimate
    """Weighted per-decision importance sampling, whose weights of each step sum to 1 over the episodes: biased, with a
    smaller variance (the same, section 4)."""
    doubly_robust: Estimate
    """Fitted values corrected by weighted errors: right if the values or the probabilities are (Jiang and Li, "Doubly
    Robust Off-policy Value Evaluation for Reinforcement Learning", arXiv 1511.03722, equation 10)."""
    effective_episodes: float
    """``(sum w)^2 / sum w^2`` of the episodes' whole weights: how many episodes without weights would tell as much."""
    followed: float
    """Share of the steps whose action the policy may take, that is, whose ratio is not 0."""


def importance_estimates(
    episodes: Sequence[WeightedEpisode], gamma: float, random: np.random.Generator
) -> ImportanceEstimates:
    """Estimate the discounted return of a policy.

    An episode that did not terminate goes on with the value after its last step, in all estimates.

    Args:
        episodes: at least one.
        gamma: discount factor.
        random: draws the bootstrap resamples of the episodes.
    """
    weights, paid = _padded(episodes, gamma)
    ordinary = (weights * paid).sum(1)
    robust = np.array([_doubly_robust(episode, gamma) for episode in episodes])
    drawn = resamples_of(len(episodes), random)
    means = [drawn @ each / len(episodes) for each in (ordinary, robust)]
    return ImportanceEstimates(
        ordinary=_estimate(float(ordinary.mean()), means[0]),
        weighted=_estimate(
            float(_self_normalised(np.ones((1, len(episodes))), weights, paid)[0]),
            _self_normalised(drawn, weights, paid),
        ),
        doubly_robust=_estimate(float(robust.mean()), means[1]),
        effective_episodes=effective_sample_size(weights[:, -1]),
        followed=float(np.concatenate([episode.ratios > 0 for episode in episodes]).mean()),
    )


def resamples_of(count: int, random: np.random.Generator) -> Floats:
    """Return how often each of several episodes is in each bootstrap resample, (resamples, count)."""
    resamples = max(_FEWEST_RESAMPLES, min(_RESAMPLES, _MOST_NUMBERS // count))
    return random.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)


def effective_sample_size(weights: Floats) -> float:
    """Return ``(sum w)^2 / sum w^2`` of weights (N,) (Kong, 1992); 0 where all are 0."""
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _padded(episodes: Sequence[WeightedEpisode], gamma: float) -> tuple[Floats, Floats]:
    """Return the weights and the discounted rewards of all steps, (episodes, steps) each.

    After its end, an episode keeps its weight and is paid nothing, as if it stayed in a terminal state.
    """
    longest = max(len(episode.rewards) for episode in episodes)
    weights, paid = (np.zeros((len(episodes), longest)) for _ in range(2))
    for row, episode in enumerate(episodes):
        length = len(episode.rewards)
        weights[row, :length] = np.cumprod(episode.ratios)
        weights[row, length:] = weights[row, length - 1]
        paid[row, :length] = gamma ** np.arange(length) * episode.rewards
        paid[row, length - 1] += gamma**length * episode.value_after
    return weights, paid


def _self_normalised(counts: Floats, weights: Floats, paid: Floats) -> Floats:
    """Return the weighted per-decision estimate of each resample, (resamples,).

    Args:
        counts: (resamples, episodes), how often each episode is in a resample.
        weights: (episodes, steps).
        paid: (episodes, steps), discounted.
    """
    totals = counts @ weights
    # Where all weights are 0, no episode tells anything about the step.
    means = np.divide(counts @ (weights * paid), totals, out=np.zeros_like(totals), where=totals > 0)
    estimates: Floats = means.sum(1)
    return estimates


def _doubly_robust(episode: WeightedEpisode, gamma: float) -> float:
    following = episode.value_after
    for ratio, reward, value, action_value in zip(
        *(reversed(each) for each in (episode.ratios, episode.rewards, episode.values, episode.action_values)),
        strict=True,
    ):
        following = value + ratio * (reward + gamma * following - action_value)
    return float(following)


def _estimate(value: float, resampled: Floats) -> Estimate:
    return Estimate(value, *interval(resampled))
