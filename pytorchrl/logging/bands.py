"""Aggregate the curves of several runs: a statistic over the runs, with its bootstrap interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytorchrl.logging.bootstrap import Floats, StatisticName, band
from pytorchrl.logging.curves import Curve

_MOST_POINTS = 400
_POINTS = 200
"""Points of a band whose curves were measured at more than ``_MOST_POINTS`` positions."""


@dataclass(frozen=True)
class Band:
    """A statistic over runs along an axis, with its confidence band."""

    x: Floats
    values: Floats
    low: Floats
    """Lower bound of the 95% interval; NaN for a single run."""
    high: Floats

    def __len__(self) -> int:
        return len(self.x)


def band_of(curves: Sequence[Curve], statistic: StatisticName = "iqm") -> Band | None:
    """Return a statistic over curves in the range that all of them cover; None where they do not overlap.

    Curves are interpolated linearly. Beyond the end of the shortest curve, the statistic would be of fewer runs.
    """
    x = common_positions(curves)
    if not len(x):
        return None
    if len(curves) > 1 and len(x) > _MOST_POINTS:
        x = np.linspace(x[0], x[-1], _POINTS)
    values = np.stack([np.interp(x, curve.x, curve.values) for curve in curves])  # (runs, points)
    return Band(x, *band(values, statistic))


def common_positions(curves: Sequence[Curve]) -> Floats:
    """Return the positions of curves in the range that all of them cover, of shape (points,)."""
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.unique(np.concatenate([curve.x for curve in curves]))
    common: Floats = x[(x >= first) & (x <= last)]
    return common
