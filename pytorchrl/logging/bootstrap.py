"""Statistics of few runs, with bootstrap intervals.

After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021 (arXiv 2108.13264).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

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


_Floats = NDArray[np.float64]


def weights_of(counts: Sequence[int]) -> _Floats:
    """Return the weights by which environments of these numbers of runs count alike, of shape (runs,).

    They are integers, so that their sums are exact: multiples of one over the number of runs in the environment.
    """
    multiple = math.lcm(*counts)
    return np.repeat([float(multiple // count) for count in counts], counts)


def weighted_mean(values: NDArray[Any], weights: _Floats) -> _Floats:
    """Return the weighted mean of the last axis."""
    return np.asarray(values @ weights / weights.sum(), np.float64)


def weighted_median(values: NDArray[Any], weights: _Floats) -> _Floats:
    """Return the value with half of the weight on either side, or the mean of the two around it."""
    ordered, of_ordered = _sorted(values, weights)
    below, half = np.cumsum(of_ordered, axis=-1), weights.sum() / 2
    first, second = ((below >= half).argmax(axis=-1), (below > half).argmax(axis=-1))
    return np.asarray((_taken(ordered, first) + _taken(ordered, second)) / 2, np.float64)


def weighted_interquartile_mean(values: NDArray[Any], weights: _Floats) -> _Floats:
    """Return the mean without the lowest and the highest quarter of the weight.

    Of n values, the share ``n // 4 / n`` of the weight is left out at either end, a value in part where the share ends
    within it: with equal weights these are ``n // 4`` values.
    """
    ordered, of_ordered = _sorted(values, weights)
    total = weights.sum()
    cut = total * (len(weights) // 4) / len(weights)
    to = np.cumsum(of_ordered, axis=-1)
    kept = np.maximum(np.minimum(to, total - cut) - np.maximum(to - of_ordered, cut), 0.0)
    return np.asarray((kept * ordered).sum(axis=-1) / kept.sum(axis=-1), np.float64)


def _sorted(values: NDArray[Any], weights: _Floats) -> tuple[NDArray[Any], _Floats]:
    order = np.argsort(values, axis=-1)
    return np.take_along_axis(values, order, axis=-1), weights[order]


def _taken(values: NDArray[Any], index: NDArray[np.intp]) -> NDArray[Any]:
    return np.take_along_axis(values, np.expand_dims(index, -1), axis=-1)[..., 0]


_WEIGHTED: Mapping[StatisticName, Callable[..., Any]] = {
    "iqm": weighted_interquartile_mean,
    "median": weighted_median,
    "mean": weighted_mean,
}
