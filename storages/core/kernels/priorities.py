"""What an update's errors mean for priorities, in one pass each instead of one array operation after another."""

import math

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def first_not_finite(errors: NDArray[np.floating]) -> int:
    """Position of the first error that is NaN or infinite, -1 where all are finite."""
    for i in range(errors.shape[0]):
        if not math.isfinite(errors[i]):
            return i
    return -1


@numba.njit(cache=True, nogil=True)
def store_errors(
    transitions: NDArray[np.int64],
    errors: NDArray[np.floating],
    begin: int,
    end: int,
    stored: NDArray[np.float32],
    rows: NDArray[np.int64],
    magnitudes: NDArray[np.float32],
) -> tuple[int, float]:
    """Store the magnitudes of errors of transitions that are still live.

    Args:
        transitions: (B,) numbers.
        errors: (B,), finite.
        begin: number of the oldest live transition.
        end: number after the newest.
        stored: (rows,), written: transition ``n`` in row ``n % rows``.
        rows: (B,), written: the rows of those that are live.
        magnitudes: (B,), written: what was stored there.

    Returns:
        How many are live, and the largest of their magnitudes.
    """
    live, largest = 0, 0.0
    for i in range(transitions.shape[0]):
        if begin <= transitions[i] < end:
            row, magnitude = transitions[i] % stored.shape[0], np.float32(abs(errors[i]))
            rows[live], magnitudes[live] = row, magnitude
            stored[row] = magnitude
            largest = max(largest, float(magnitude))
            live += 1
    return live, largest


@numba.njit(cache=True, nogil=True)
def effective_sample_size(weights: NDArray[np.float32]) -> float:
    """``(sum w)**2 / (B sum w**2)`` of weights (B,): 1 where all are equal, 1 / B where one is all."""
    total, squares = 0.0, 0.0
    for i in range(weights.shape[0]):
        weight = float(weights[i])
        total += weight
        squares += weight * weight
    size: float = total * total / (squares * weights.shape[0])
    return size
