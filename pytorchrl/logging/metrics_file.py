"""Metrics in the run folder: a JSON object a line, readable while the run goes on and after it was killed."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from storages.persistent.log.files import open_for_append, replacing

_Record = dict[str, float | None]
_LONGEST_LINE_BYTES = 1 << 20


class MetricsError(ValueError):
    """A file of metrics that holds something else."""


class MetricsFile:
    """Appends records to a ``metrics.jsonl``; each is in the file before the call returns, and no file stays open.

    Args:
        path: the file. What it holds stays as it is until the first record is written.
        goes_on_at: of how many steps the first record is at least. Records of more that are there already are dropped:
            a run resumed from an earlier checkpoint measures those steps again. None keeps all.
    """

    def __init__(self, path: Path, goes_on_at: int | None = None) -> None:
        self._path = path
        self._goes_on_at = goes_on_at
        self._begun = False
        self._closed = False

    def begin(self) -> None:
        """Drop the records that are measured again, and a last line that a killed run did not finish.

        The first record does so as well.
        """
        if self._begun:
            return
        self._begun = True
        if not self._path.exists():
            return
        last = self._goes_on_at
        if last is not None:
            _rewrite(self._path, keep=lambda record: (record.get("steps") or 0) <= last)
        elif not self._path.read_bytes().endswith(b"\n"):
            # Else the next record would be glued to the unfinished one.
            _rewrite(self._path, keep=lambda record: True)

    def write(self, metrics: Mapping[str, float | int]) -> None:
        """Append a record. NaN and infinity, which JSON lacks, are written as null.

        Raises:
            ValueError: the file was closed.
        """
        if self._closed:
            raise ValueError(f"{self._path} was closed; make another MetricsFile to append to it")
        self.begin()
        line = json.dumps({name: _plain(value) for name, value in metrics.items()}, allow_nan=False)
        with open_for_append(self._path) as file:
            file.write(line.encode() + b"\n")

    def close(self) -> None:
        """Refuse further records."""
        self._closed = True


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """All records of a ``metrics.jsonl``, nulls as NaN; a last line that was not finished is left out.

    Raises:
        MetricsError: a line before the last is no JSON object of numbers.
    """
    return [
        {name: math.nan if value is None else value for name, value in record.items()}
        for _, record in _records(Path(path))
    ]


def _plain(value: float | int) -> float | int | None:
    """What JSON has for a number; numpy's and torch's scalars become Python's."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _records(path: Path) -> Iterator[tuple[str, _Record]]:
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE_BYTES), b""), start=1):
            if line == b"\n":
                continue
            try:
                record = json.loads(line)
                _check(record)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE_BYTES:
                    # It was not finished.
                    return
                raise MetricsError(f"{path}, line {number} is no JSON object of numbers: {error}") from error
            yield line.decode().rstrip("\n"), record


def _check(record: object) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"it is a {type(record).__name__}")
    for name, value in record.items():
        if not (value is None or isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)):
            raise ValueError(f"{name} is no number")


def _rewrite(path: Path, keep: Callable[[_Record], bool]) -> None:
    """Keep some records; whoever is interrupted here leaves the file as it was."""
    with replacing(path, durable=True) as file:
        file.writelines(line.encode() + b"\n" for line, record in _records(path) if keep(record))
