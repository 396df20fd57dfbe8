"""Data of the page's curves and histograms, for its scripts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.bands import band_of
from pytorchrl.logging.curves import SMOOTHED_SHARE, TRAINING, XAxis
from pytorchrl.logging.groups import unit
from pytorchrl.report.groups import RunGroup
from pytorchrl.report.runs import RunRead

MOST_POINTS = 1_000
"""Largest number of points of a curve; of a longer one, means of neighbouring points are shown."""
_MOST_BARS = 40
_DIGITS = 6
_RETURNS = ("test/return", "train/return")
_CLOCKS = ("steps", "seconds")
_AXES: Sequence[XAxis] = ("steps", "seconds", "episodes")
SMOOTHINGS = (0.0, 0.05, SMOOTHED_SHARE, 0.2)
"""Lengths of moving averages of training that the page offers, as shares of a curve."""
_TRAINING = "train/"


def curves_of(groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Return all metrics of runs, over steps, seconds and training episodes.

    Returns:
        "unit" of the steps; "metrics", the names; "groups", each with its "label", its "environment", its "runs", each
        of which has a "name" and, by the names of metrics, "series", and its "bands": by metric, axis and smoothing.
    """
    runs = [run for group in groups for run in group.runs]
    metrics = dict.fromkeys(name for run in runs for record in run.records for name in record)
    return {
        "unit": unit(group.group for group in groups),
        "metrics": sorted(name for name in metrics if name not in (*_CLOCKS, *_RETURNS)),
        "groups": [
            {
                "label": group.label,
                "environment": group.environment,
                "runs": [{"name": run.name, "series": _series_of(run)} for run in group.runs],
                "bands": _bands_of(group.runs),
            }
            for group in groups
        ],
    }


def histogram(
    values: NDArray[Any], title: str, unit: str, weights: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    """Return a histogram of the finite values: "title", "unit", "edges" and "heights"."""
    finite = np.isfinite(values)
    shown = values[finite]
    bars = min(_MOST_BARS, max(1, 2 * int(np.ceil(np.sqrt(len(shown))))))
    heights, edges = np.histogram(shown, bars, weights=None if weights is None else weights[finite])
    return {"title": title, "unit": unit, "edges": _rounded(edges), "heights": _rounded(heights)}


def _series_of(run: RunRead) -> dict[str, dict[str, list[float | None]]]:
    """Return the values of each metric, and the positions at which they were measured."""
    episodes = np.cumsum([record.get("train/episodes", 0.0) for record in run.records])
    names = dict.fromkeys(name for record in run.records for name in record if name not in _CLOCKS)
    series = {}
    for name in names:
        if not _is_drawn(run, name):
            continue
        at = [number for number, record in enumerate(run.records) if np.isfinite(record.get(name, np.nan))]
        if not at:
            continue
        columns = {clock: [run.records[number].get(clock, np.nan) for number in at] for clock in _CLOCKS}
        columns["episodes"] = list(episodes[at]) if episodes[-1] else []
        columns["y"] = [run.records[number][name] for number in at]
        series[name] = {column: _rounded(_thinned(np.array(values))) for column, values in columns.items()}
    return series


def _is_drawn(run: RunRead, name: str) -> bool:
    """Whether a metric is drawn; returns of training are not, where they do not compare with those of evaluations."""
    return name != TRAINING or len(run.measured.training()) > 0


def _bands_of(runs: Sequence[RunRead]) -> dict[str, dict[str, dict[str, dict[str, list[float | None]]]]]:
    """Return the statistic of several runs and its interval, as figures of runs have them, by metric, axis and share.

    Those of metrics of training are there for each smoothing, the others for none alone.
    """
    if len(runs) < 2:
        return {}
    names = dict.fromkeys(name for run in runs for record in run.records for name in record if name not in _CLOCKS)
    found: dict[str, dict[str, dict[str, dict[str, list[float | None]]]]] = {}
    for name in names:
        measured = [run.measured for run in runs if _is_drawn(run, name)]
        for axis in _AXES:
            for share in SMOOTHINGS if name.startswith(_TRAINING) else (0.0,):
                curves = [run.smoothed(name, axis, share) for run in measured]
                # Where no episodes were counted, all points are at 0.
                curves = [one for one in curves if len(one) and (axis != "episodes" or one.x[-1] > 0)]
                band = band_of(curves) if len(curves) > 1 else None
                if band is not None:
                    of_axis = found.setdefault(name, {}).setdefault(axis, {})
                    of_axis[f"{share:g}"] = {
                        "x": _rounded(band.x),
                        "y": _rounded(band.values),
                        "low": _rounded(band.low),
                        "high": _rounded(band.high),
                    }
    return found


def _thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average neighbouring points, so that no more than ``MOST_POINTS`` are left."""
    together = -(-len(values) // MOST_POINTS)
    if together <= 1:
        return values
    starts = np.arange(0, len(values), together)
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / np.diff([*starts, len(values)])
    return means


def _rounded(values: NDArray[Any]) -> list[float | None]:
    """Round values for JSON; those that are not finite become None."""
    return [_short(float(value)) if np.isfinite(value) else None for value in values]


def _short(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.{_DIGITS}g}")
