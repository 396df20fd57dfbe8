"""The standard error of a mean, which the tables of results show."""

import statistics
from collections.abc import Sequence


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of at least two values."""
    return float(statistics.stdev(values) / len(values) ** 0.5)
