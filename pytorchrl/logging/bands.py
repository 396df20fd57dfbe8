"""Curves of several runs as one: a statistic over the runs, with its bootstrap interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytorchrl.logging.bootstrap import Floats, StatisticName, band
from pytorchrl.logging.curves import Curve

_MOST_POINTS = 400
_POINTS = 200
"""Of curves that were measured at more different positions than that."""


@dataclass(frozen=True)
class Band:
    """A statistic over runs."""

    x: Floats
    values: Floats
    low: Floats
    """Of the 95% interval; NaN of a single run."""
    high: Floats

    def __len__(self) -> int:
        return len(self.x)


def band_of(curves: Sequence[Curve], statistic: StatisticName = "iqm") -> Band | None:
    """A statistic of curves where all of them were measured; None where they do not overlap.

    Between its points a curve is a straight line. Beyond the end of the shortest the statistic would be that of the
    runs that went on, which are others.
    """
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    if first > last:
        return None
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    x = x[(x >= first) & (x <= last)]
    if len(curves) > 1 and len(x) > _MOST_POINTS:
        x = np.linspace(first, last, _POINTS)
    values = np.stack([np.interp(x, curve.x, curve.values) for curve in curves])  # (runs, points)
    return Band(x, *band(values, statistic))
