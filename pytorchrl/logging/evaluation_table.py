"""All evaluations of a run, as a table."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytorchrl.logging.metrics_file import read_metrics

_COLUMNS: Mapping[str, str] = {
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
"""Columns, and the metrics in them."""

Row = Mapping[str, float]


def read_evaluations(run: str | os.PathLike[str]) -> list[Row]:
    """The evaluations of a run, oldest first.

    Args:
        run: the run folder.

    Returns:
        For each, "steps" and "seconds" of training before it, "episodes", and of their returns "mean", "median",
        "deviation", "minimum" and "maximum"; "length" is the episodes' mean length.

    Raises:
        FileNotFoundError: the folder holds no metrics.
        MetricsError: they are damaged.
    """
    records = [record for record in read_metrics(Path(run) / "metrics.jsonl") if "test/return" in record]
    return [{name: record[metric] for name, metric in _COLUMNS.items() if metric in record} for record in records]


def as_markdown(rows: Sequence[Row]) -> str:
    """Evaluations as a table in Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + " ---: |" * len(_COLUMNS)]
    return "\n".join([*lines, *(f"| {' | '.join(_texts(row))} |" for row in rows)])


def as_csv(rows: Sequence[Row]) -> str:
    """Evaluations as comma-separated values."""
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _texts(row: Row) -> list[str]:
    whole = ("steps", "episodes")
    return [f"{row[name]:,.0f}" if name in whole else f"{row[name]:.2f}" if name in row else "" for name in _COLUMNS]
