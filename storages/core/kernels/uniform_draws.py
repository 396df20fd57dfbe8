"""Uniform integers from the raw bits of a generator.

``Generator.integers`` has more overhead than the draw of a batch of rows costs.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel

_LARGEST_RANGE = 2**32


def uniform_integers(generator: np.random.Generator, low: int, high: int, count: int) -> NDArray[np.int64]:
    """Draw (count,) integers of [low, high), uniformly with replacement.

    Each uses 64 random bits, so that the relative error of its probability is at most ``(high - low) / 2**64``.

    Args:
        generator: one with 64-bit raw output, such as ``numpy.random.default_rng``.
        low: the smallest integer.
        high: the largest one plus 1, above ``low``.
        count: number of integers.
    """
    size = high - low
    if not 0 < size <= _LARGEST_RANGE:
        return generator.integers(low, high, count, np.int64)
    return _scaled(generator.bit_generator.random_raw(count), low, size)


@kernel
def _scaled(bits: NDArray[np.uint64], low: int, size: int) -> NDArray[np.int64]:
    """Lemire, "Fast Random Integer Generation in an Interval" (arXiv 1805.10941), section 3, without the rejection.

    The upper 64 of the 128 bits of ``bits * size``, of which ``size`` has at most 33: computed in two halves.
    """
    integers, half, factor = np.empty(len(bits), np.int64), np.uint64(32), np.uint64(size)
    for i in range(len(bits)):
        upper, lower = (bits[i] >> half) * factor, (bits[i] & np.uint64(0xFFFFFFFF)) * factor
        integers[i] = low + np.int64((upper + (lower >> half)) >> half)
    return integers
