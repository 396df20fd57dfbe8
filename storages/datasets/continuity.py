"""Where the next observation of a step is not the observation of the following one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.transition import Array

_ROWS_AT_ONCE = 100_000
_OF_SPREAD = 1e-6
"""Rounding of a difference of larger numbers, as a fraction of the spread of a component."""


def breaks_in(observations: Mapping[str, Any], following: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return whether the next observation of each step (N,) differs from the observation of the following step.

    Numbers are compared in the coarser of the two precisions in which they are kept: next observations that were
    rounded, or cast to float16 and back, differ from nothing. Whole numbers are compared exactly. NaN equals NaN.

    Args:
        observations: arrays (N, ...) by the name of their part.
        following: as observations, after each step.
    """
    breaks = np.zeros(len(next(iter(observations.values()))), np.bool_)
    for name, part in observations.items():
        for begin in range(0, len(breaks) - 1, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, len(breaks) - 1)
            here, there = np.asarray(following[name][begin:end]), np.asarray(part[begin + 1 : end + 1])
            rows = (end - begin, -1)
            breaks[begin:end] |= _differ(here.reshape(rows), there.reshape(rows)).any(axis=1)
    return breaks


def _differ(one: Array, two: Array) -> NDArray[np.bool_]:
    """Return which numbers (rows, components) differ by more than rounding."""
    unequal: NDArray[np.bool_] = (one != two) & ~((one != one) & (two != two))
    if not unequal.any() or (one.dtype.kind != "f" and two.dtype.kind != "f"):
        return unequal
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = one.astype(np.float64), two.astype(np.float64)
        if _whole(left) and _whole(right):
            return unequal
        finite = np.isfinite(left) & np.isfinite(right)
        spread = np.ptp(np.where(finite, left, 0), axis=0)
        precision = max(_precision(one), _precision(two))
        allowed = precision * np.maximum(np.abs(left), np.abs(right)) + _OF_SPREAD * spread
        differs: NDArray[np.bool_] = unequal & ~(finite & (np.abs(left - right) <= allowed))
    return differs


def _precision(array: Array) -> float:
    """Return the largest relative error of a cast to the coarsest floats that hold an array."""
    if array.dtype.kind != "f":
        return 0.0
    finite = array[np.isfinite(array)]
    if finite.dtype.itemsize >= np.dtype(np.float32).itemsize:
        single = finite.astype(np.float32)
        if np.array_equal(single, finite):
            # bfloat16 is the upper half of float32.
            if not (single.view(np.uint32) & 0xFFFF).any():
                return 2.0**-7
            if np.array_equal(finite.astype(np.float16).astype(finite.dtype), finite):
                return 2.0**-10
            return 2.0**-22
        return 2.0**-48
    return 2.0**-10


def _whole(array: NDArray[np.float64]) -> bool:
    return bool(np.all((array == np.rint(array)) | ~np.isfinite(array)))
