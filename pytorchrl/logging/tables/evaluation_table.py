"""All evaluations of a run, as a table."""

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from pytorchrl.logging.metrics_file import read_metrics
from pytorchrl.run_files import RunFiles

COLUMNS: Mapping[str, str] = {
    "steps": "steps",
    "seconds": "seconds",
    "episodes": "test/episodes",
    "mean": "test/return",
    "median": "test/return_median",
    "deviation": "test/return_std",
    "minimum": "test/return_min",
    "maximum": "test/return_max",
    "length": "test/episode_length",
}
"""The columns, and the metrics that they show."""

_OF_A_NAME = re.compile(r"test/(.+)/return")

Row = Mapping[str, float]


def read_evaluations(run: str | os.PathLike[str]) -> list[Row]:
    """Read the evaluations of a run, oldest first.

    Args:
        run: the run folder.

    Returns:
        For each, "steps" and "seconds" of training before it, "episodes", and of their returns "mean", "median",
        "deviation", "minimum" and "maximum"; "length" is the episodes' mean length.

    Raises:
        FileNotFoundError: the folder holds no metrics.
        MetricsError: they are damaged.
    """
    return evaluations_of(read_metrics(RunFiles(run).metrics_file))


def evaluations_of(records: Iterable[Mapping[str, float]], name: str | None = None) -> list[Row]:
    """Return the evaluations among records of metrics, as `read_evaluations` does.

    Args:
        records: the metrics, oldest first.
        name: that of an :class:`EvaluateIn`; None for evaluations in the test environments.
    """
    prefix = "test/" if name is None else f"test/{name}/"
    columns = {column: metric.replace("test/", prefix) for column, metric in COLUMNS.items()}
    return [
        {column: record[metric] for column, metric in columns.items() if metric in record}
        for record in records
        if f"{prefix}return" in record
    ]


def evaluation_names(records: Iterable[Mapping[str, float]]) -> list[str | None]:
    """Return the names of evaluations: None for the test environments, and those of :class:`EvaluateIn`."""
    metrics = dict.fromkeys(metric for record in records for metric in record)
    names: list[str | None] = [None] if "test/return" in metrics else []
    return [*names, *(found[1] for metric in metrics if (found := _OF_A_NAME.fullmatch(metric)))]


def as_markdown(rows: Sequence[Row]) -> str:
    """Format evaluations as a table in Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + " ---: |" * len(COLUMNS)]
    return "\n".join([*lines, *(f"| {' | '.join(texts_of(row))} |" for row in rows)])


def as_csv(rows: Sequence[Row]) -> str:
    """Format evaluations as comma-separated values."""
    return csv_of(rows, list(COLUMNS))


def csv_of(records: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None) -> str:
    """Format records as comma-separated values.

    Args:
        records: a line each.
        columns: their names; None takes those of the first record, which all have.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, columns or (list(records[0]) if records else []), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def texts_of(row: Row) -> list[str]:
    """Format an evaluation, column by column."""
    whole = ("steps", "episodes")
    return ["" if name not in row else f"{row[name]:,.0f}" if name in whole else f"{row[name]:.2f}" for name in COLUMNS]
