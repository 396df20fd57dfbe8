"""Statistics of runs that count differently: of environments with different numbers of runs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
