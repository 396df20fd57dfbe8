"""Metrics in the run folder: a JSON object a line, readable while the run goes on and after it was killed."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path


class MetricsFile:
    """Appends records to a ``metrics.jsonl``; each is in the file before the call returns, and no file stays open.

    Args:
        path: the file; what it holds stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record: Mapping[str, float | int]) -> None:
        """Append a record. NaN and infinity, which JSON lacks, are written as null."""
        finite = {name: value if math.isfinite(value) else None for name, value in record.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite, allow_nan=False) + "\n")

    @staticmethod
    def truncate_after(path: Path, steps: int) -> None:
        """Drop the records of more than ``steps`` steps, and a last line that was not finished.

        A run resumed from an earlier checkpoint measures those steps again.
        """
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            for line, record in _records(path):
                if (record["steps"] or 0) <= steps:
                    file.write(line + "\n")
        partial.replace(path)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """All records of a ``metrics.jsonl``, nulls as NaN; a last line that was not finished is left out."""
    return [
        {name: math.nan if value is None else value for name, value in record.items()} for _, record in _records(path)
    ]


def _records(path: Path) -> Iterator[tuple[str, dict[str, float | None]]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            yield line, json.loads(line)
        except ValueError as error:
            if number == len(lines) - 1:
                return
            raise ValueError(f"{path}, line {number + 1} is not JSON: {error}") from error
