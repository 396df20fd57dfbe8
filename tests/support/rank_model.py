"""Reference priorities by rank, from sorted lists."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


def rank_priorities(
    errors: Sequence[float], alpha: float, error_min: float = 0.0, error_max: float = np.inf
) -> NDArray[np.float64]:
    """``(1 / rank)**alpha`` of each error, equal ones sharing their mean rank."""
    known = [_bucket(min(max(abs(error), error_min), error_max)) for error in errors]
    falling = sorted(known, reverse=True)
    ranks = [Fraction(2 * falling.index(one) + falling.count(one) + 1, 2) for one in known]
    return np.array([float(_rounded(rank)) ** -alpha for rank in ranks])


def _bucket(error: float) -> float:
    """The largest number below that is a power of two times a multiple of 1/512."""
    mantissa, exponent = np.frexp(np.float32(error))
    return float(np.ldexp(np.floor(mantissa * 1024) / 1024, exponent))


def _rounded(rank: Fraction) -> Fraction:
    if rank < 16:
        return rank
    unit = 1
    while rank >= 4 * 2 * unit:
        unit *= 2
    # Halves are rounded up.
    return (rank / unit + Fraction(1, 2)).__floor__() * Fraction(unit)
