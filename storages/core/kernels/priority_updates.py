"""What an update's errors mean for priorities, in one pass each instead of one array operation after another."""

import math

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel
from storages.core.kernels.memory import address_of, prefetch_at


@kernel
def store_errors(
    transitions: NDArray[np.int64],
    errors: NDArray[np.floating],
    begin: int,
    end: int,
    stored: NDArray[np.float32],
    rows: NDArray[np.int64],
    magnitudes: NDArray[np.float64],
) -> tuple[int, float]:
    """Store the magnitudes of errors of transitions that are still live; nothing where one is not finite as float32.

    Args:
        transitions: (B,) numbers.
        errors: (B,).
        begin: number of the oldest live transition.
        end: number after the newest.
        stored: (rows,), written: transition ``n`` in row ``n % rows``.
        rows: (B,), written: the rows of those that are live.
        magnitudes: (B,), written: what was stored there.

    Returns:
        How many are live, and the largest of their magnitudes; of the first error that is not finite, its position
        less the number of errors, and 0.
    """
    count, live, largest = transitions.shape[0], 0, 0.0
    for i in range(count):
        if not math.isfinite(np.float32(errors[i])):
            return i - count, 0.0
        if begin <= transitions[i] < end:
            rows[live], magnitudes[live] = transitions[i] % stored.shape[0], np.float32(abs(errors[i]))
            prefetch_at(address_of(stored) + rows[live] * stored.itemsize)
            live += 1
    for i in range(live):
        stored[rows[i]] = magnitudes[i]
        largest = max(largest, magnitudes[i])
    return live, largest


@kernel
def effective_sample_size(weights: NDArray[np.float32]) -> float:
    """``(sum w)**2 / (B sum w**2)`` of weights (B, 1): 1 where all are equal, 1 / B where one is all."""
    total, squares = 0.0, 0.0
    for i in range(weights.shape[0]):
        weight = float(weights[i, 0])
        total += weight
        squares += weight * weight
    size: float = total * total / (squares * weights.shape[0])
    return size


@kernel
def mean_of(indices: NDArray[np.int64]) -> float:
    """Of numbers of transitions (B, 1)."""
    total = 0.0
    for i in range(indices.shape[0]):
        total += indices[i, 0]
    mean: float = total / indices.shape[0]
    return mean
