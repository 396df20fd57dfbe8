"""Whether a group is better than another, and how many seeds are missing to say so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.bootstrap import CONFIDENCE, SEED, Estimate, interval, resampled

_POWER = 0.8
_PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Improvement:
    """How a group does beside the baseline."""

    name: str
    baseline: str
    probability: Estimate
    """That a run of the group has a larger score than one of the baseline, equal ones counted half; the mean over
    environments."""
    seeds: int
    """Of each of the two in each environment, the smallest number."""
    seeds_needed: int | None
    """To tell a difference of this size; None where none is seen."""

    @property
    def is_conclusive(self) -> bool:
        """Whether the interval excludes a half, and there are seeds enough for it to be trusted."""
        if self.seeds_needed is None or self.seeds < self.seeds_needed or not self.probability.has_interval:
            return False
        return not self.probability.low <= 0.5 <= self.probability.high

    @property
    def conclusion(self) -> str:
        """What can be said, in a few words."""
        if self.is_conclusive:
            return "better" if self.probability.value > 0.5 else "worse"
        if self.seeds_needed is None:
            return "open: no difference"
        missing = max(1, self.seeds_needed - self.seeds)
        return f"open: {missing} more seeds" if missing > 1 else "open: 1 more seed"


def improvement(
    name: str, scores: Sequence[NDArray[np.float64]], baseline: str, others: Sequence[NDArray[np.float64]]
) -> Improvement:
    """Compare scores of a group with those of the baseline, environment by environment.

    Args:
        name: of the group.
        scores: of each environment, of shape (runs,).
        baseline: its name.
        others: its scores, in the same environments.
    """
    pairs = list(zip(scores, others, strict=True))
    probability = float(np.mean([_share_larger(one[None], other[None])[0] for one, other in pairs]))
    fewest = min(min(len(one), len(other)) for one, other in pairs)
    bounds = (math.nan, math.nan)
    if fewest > 1:
        generator = np.random.default_rng(SEED)
        drawn = [_share_larger(resampled(one, generator), resampled(other, generator)) for one, other in pairs]
        bounds = interval(np.mean(drawn, axis=0))
    return Improvement(name, baseline, Estimate(probability, *bounds), fewest, seeds_needed(probability, len(pairs)))


def seeds_needed(probability: float, environments: int = 1) -> int | None:
    """Seeds of each of two groups with which a test of 5% finds such a probability of improvement four times of five.

    By Noether, "Sample Size Determination for Some Common Nonparametric Tests", 1987, for the test of Mann and Whitney;
    over several environments the variance of the mean falls with their number.

    Args:
        probability: of improvement.
        environments: in each of which the groups have so many runs.

    Returns:
        None where the probability is a half.
    """
    if probability == 0.5:
        return None
    quantiles = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) + NormalDist().inv_cdf(_POWER)
    return max(2, math.ceil(quantiles**2 / (6 * environments * (probability - 0.5) ** 2)))


def _share_larger(ones: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """In each row, the share of pairs of which the first is larger, equal ones counted half."""
    rows = max(1, _PAIRS_AT_ONCE // (ones.shape[1] * others.shape[1]))
    shares = []
    for begin in range(0, len(ones), rows):
        one, other = ones[begin : begin + rows, :, None], others[begin : begin + rows, None, :]
        shares.append(((one > other) + 0.5 * (one == other)).mean(axis=(1, 2)))
    return np.concatenate(shares)
