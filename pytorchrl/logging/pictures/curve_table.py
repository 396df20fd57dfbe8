"""The curves of a figure as comma-separated values."""

from collections.abc import Iterator, Sequence

from pytorchrl.logging.bands import band_of
from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import Curve
from pytorchrl.logging.groups import Group
from pytorchrl.logging.pictures.curve_styles import Choice
from pytorchrl.logging.pictures.panels import curves_of_groups
from pytorchrl.logging.tables.evaluation_table import csv_of


def curves_as_csv(groups: Sequence[Group], choice: Choice) -> str:
    """Format the lines of a figure: a record for each point of a group's statistic over its runs, with its interval.

    Returns:
        Columns "environment", "group", "kind" ("evaluation" or "training"), "runs", the axis ("steps", "seconds" or
        "episodes"), "value", "low" and "high"; the last two are empty for a single run. Runs without a common range
        follow one another.

    Raises:
        ValueError: the runs have not measured the quantity over that axis.
    """
    records: list[dict[str, object]] = []
    for environment, panel in curves_of_groups(groups, choice).items():
        for group in panel:
            for kind, curves in (("evaluation", group.evaluations), ("training", group.training)):
                for runs, x, value, low, high in _points(curves, choice.statistic):
                    line = {"environment": environment, "group": group.name, "kind": kind, "runs": runs, choice.x: x}
                    records.append({**line, "value": value, "low": _known(low), "high": _known(high)})
    return csv_of(records)


def _points(curves: Sequence[Curve], statistic: StatisticName) -> Iterator[tuple[int, float, float, float, float]]:
    """Yield number of runs, position, value and bounds of each point; each run's own where they do not overlap."""
    together = band_of(curves, statistic) if curves else None
    bands = [(len(curves), together)] if together is not None else [(1, band_of([curve])) for curve in curves]
    for runs, band in bands:
        if band is not None:
            columns = (band.x.tolist(), band.values.tolist(), band.low.tolist(), band.high.tolist())
            yield from ((runs, *point) for point in zip(*columns, strict=True))


def _known(value: float) -> float | str:
    return "" if value != value else value
