"""Probability of improvement over a baseline, and the number of seeds needed to detect it."""

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
    """Comparison of a group with the baseline."""

    name: str
    baseline: str
    probability: Estimate
    """That a run of the group has a larger score than one of the baseline, ties counted half; the mean over
    environments."""
    seeds: int
    """The smallest number of seeds of either group in an environment."""
    seeds_needed: int | None
    """Seeds needed to detect a difference of this size; None where there is none."""

    @property
    def is_conclusive(self) -> bool:
        """Whether the interval excludes a half, and there are seeds enough for it to be trusted."""
        if self.seeds_needed is None or self.seeds < self.seeds_needed or not self.probability.has_interval:
            return False
        return not self.probability.low <= 0.5 <= self.probability.high

    @property
    def conclusion(self) -> str:
        """The conclusion, in a few words."""
        if self.is_conclusive:
            return "better" if self.probability.value > 0.5 else "worse"
        if self.seeds_needed is None:
            return "open: no difference"
        missing = self.seeds_needed - self.seeds
        if missing <= 0:
            # One comparison in five has enough seeds by its estimate, and an interval with a half in it all the same.
            return "open: more seeds"
        return f"open: {missing} more seeds" if missing > 1 else "open: 1 more seed"


def improvement(
    name: str, scores: Sequence[NDArray[np.float64]], baseline: str, others: Sequence[NDArray[np.float64]]
) -> Improvement:
    """Compare scores of a group with those of the baseline, environment by environment.

    Where every run of one scores more than those of the other, all resamples do, and the interval has no width: it is
    left out where there are fewer seeds than are needed, as it says nothing about further ones.

    Args:
        name: of the group.
        scores: of each environment, of shape (runs,).
        baseline: its name.
        others: its scores, in the same environments.
    """
    pairs = list(zip(scores, others, strict=True))
    probability = float(np.mean([_share_larger(one[None], other[None])[0] for one, other in pairs]))
    fewest = min(min(len(one), len(other)) for one, other in pairs)
    bounds, needed = (math.nan, math.nan), seeds_needed(probability, len(pairs))
    if fewest > 1:
        generator = np.random.default_rng(SEED)
        drawn = [_share_larger(resampled(one, generator), resampled(other, generator)) for one, other in pairs]
        low, high = interval(np.mean(drawn, axis=0))
        if low != high or (needed is not None and fewest >= needed):
            bounds = (low, high)
    return Improvement(name, baseline, Estimate(probability, *bounds), fewest, needed)


def seeds_needed(probability: float, environments: int = 1) -> int | None:
    """Return the seeds per group with which a test at the 5% level has a power of 80%.

    By Noether, "Sample Size Determination for Some Common Nonparametric Tests", 1987, for the Mann-Whitney test; over
    several environments the variance of the mean is divided by their number.

    Args:
        probability: the probability of improvement that is to be detected.
        environments: in each of which the groups have that many seeds.

    Returns:
        None where the probability is a half.

    Raises:
        ValueError: the probability is not between 0 and 1, or there is no environment.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"seeds_needed: probability must be between 0 and 1, got {probability:g}")
    if environments < 1:
        raise ValueError(f"seeds_needed: environments must be at least 1, got {environments}")
    if probability == 0.5:
        return None
    quantiles = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) + NormalDist().inv_cdf(_POWER)
    return max(2, math.ceil(quantiles**2 / (6 * environments * (probability - 0.5) ** 2)))


def _share_larger(ones: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of pairs in each row in which the first score is larger, ties counted half."""
    rows = max(1, _PAIRS_AT_ONCE // (ones.shape[1] * others.shape[1]))
    shares = []
    for begin in range(0, len(ones), rows):
        one, other = ones[begin : begin + rows, :, None], others[begin : begin + rows, None, :]
        shares.append(((one > other) + 0.5 * (one == other)).mean(axis=(1, 2)))
    return np.concatenate(shares)
