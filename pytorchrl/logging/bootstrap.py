"""Statistics of few runs, with bootstrap intervals.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021 (arXiv 2108.13264).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.weighted import weighted_interquartile_mean, weighted_mean, weighted_median, weights_of

Floats: TypeAlias = NDArray[np.float64]
StatisticName: TypeAlias = Literal["iqm", "median", "mean"]

CONFIDENCE = 0.95
RESAMPLES = 10_000
"""Of a statistic of scores."""
BAND_RESAMPLES = 1_000
"""Of a statistic of curves, which have many points."""
SEED = 0
"""Of the generator of resamples."""
_MOST_VALUES_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Estimate:
    """A statistic with its 95% interval, which is NaN where there are too few runs for one."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether there were enough runs for an interval."""
        return not math.isnan(self.low)


def interquartile_mean(values: NDArray[Any], axis: int = -1) -> Floats:
    """Return the mean without the lowest and the highest quarter of the values.

    Of n values, ``n // 4`` are left out at either end; of fewer than four values it is the mean of all.
    """
    cut = values.shape[axis] // 4
    kept = np.sort(values, axis=axis).take(range(cut, values.shape[axis] - cut), axis=axis)
    return np.asarray(kept.mean(axis=axis), np.float64)


STATISTICS: Mapping[StatisticName, Callable[..., Any]] = {
    "iqm": interquartile_mean,
    "median": np.median,
    "mean": np.mean,
}
_WEIGHTED: Mapping[StatisticName, Callable[..., Any]] = {
    "iqm": weighted_interquartile_mean,
    "median": weighted_median,
    "mean": weighted_mean,
}


def estimate(strata: Sequence[NDArray[Any]], statistic: StatisticName = "iqm") -> Estimate:
    """Return a statistic of all scores, with its stratified bootstrap interval.

    Environments count alike, however many runs they have, as in performance profiles and probabilities of improvement.
    Runs are resampled with replacement within each stratum (section 4.1 of the paper); the interval lies between the
    percentiles 2.5 and 97.5.

    Args:
        strata: the scores of each environment, of shape (runs,).
        statistic: its name.
    """
    value = value_of(strata, statistic)
    if min(map(len, strata)) < 2:
        return Estimate(value, math.nan, math.nan)
    generator = np.random.default_rng(SEED)
    drawn = np.concatenate([resampled(scores, generator) for scores in strata], axis=1)  # (resamples, scores)
    return Estimate(value, *interval(_over(strata, drawn, statistic)))


def value_of(strata: Sequence[NDArray[Any]], statistic: StatisticName) -> float:
    """Return a statistic of all scores, without an interval; see :func:`estimate`."""
    return float(_over(strata, np.concatenate(strata), statistic))


def _over(strata: Sequence[NDArray[Any]], scores: NDArray[Any], statistic: StatisticName) -> Floats:
    """Return a statistic over the last axis of scores, which are in the order of the strata."""
    counts = [len(some) for some in strata]
    if len(set(counts)) == 1:
        return np.asarray(STATISTICS[statistic](scores, axis=-1), np.float64)
    return np.asarray(_WEIGHTED[statistic](scores, weights_of(counts)), np.float64)


def resampled(scores: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Draw bootstrap resamples of scores, of shape (resamples, runs)."""
    return scores[generator.integers(len(scores), size=(RESAMPLES, len(scores)))]


def interval(values: NDArray[Any]) -> tuple[float, float]:
    """Return the percentiles 2.5 and 97.5 of resampled statistics."""
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def band(values: NDArray[Any], statistic: StatisticName = "iqm") -> tuple[Floats, Floats, Floats]:
    """Return a statistic of curves at each point, with the bounds of its bootstrap interval.

    The bounds are NaN for a single run.

    Args:
        values: of shape (runs, points). Whole runs are resampled.
        statistic: its name.
    """
    function = STATISTICS[statistic]
    runs, points = values.shape
    line = np.asarray(function(values, axis=0), np.float64)
    if runs < 2:
        return line, np.full(points, np.nan), np.full(points, np.nan)
    drawn, of_resample = _distinct(np.random.default_rng(SEED).integers(runs, size=(BAND_RESAMPLES, runs)))
    low, high = np.empty(points), np.empty(points)
    at_once = max(1, _MOST_VALUES_AT_ONCE // drawn.size)
    for begin in range(0, points, at_once):
        some = slice(begin, begin + at_once)
        statistics = function(values[:, some][drawn], axis=1)[of_resample]  # (resamples, points)
        low[some], high[some] = np.quantile(statistics, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return line, low, high


def _distinct(drawn: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct draws, in any order of their runs, and the number of that of each resample.

    Of few runs there are few: 10 of three, 126 of five.
    """
    distinct, numbers = np.unique(np.sort(drawn, axis=1), axis=0, return_inverse=True)
    return distinct, numbers.reshape(-1)
