"""Metrics in the run folder: one JSON object per line, readable during the run and after a crash."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pytorchrl.run_files import RunFiles
from storages.files import open_for_append, replacing

_Record = dict[str, float | None]
_LONGEST_LINE_BYTES = 1 << 20


class MetricsError(ValueError):
    """A line of a metrics file is not a JSON object of numbers."""


class MetricsFile:
    """Appends records to a ``metrics.jsonl``; each is written before the call returns, and the file is not kept open.

    Args:
        path: the file, which is not changed before the first record is written or :meth:`begin` is called.
        resumed_at: the steps at which a resumed run continues. Existing records of more steps are dropped, since the
            run measures those steps again. None keeps all.

    Attributes:
        records: number of records in the file, once it was begun. Set before, by a resumed run, to the number when it
            was saved: later records are dropped, those of the same steps too. None drops by steps alone.
    """

    records: int | None = None

    def __init__(self, path: Path, resumed_at: int | None = None) -> None:
        self._path = path
        self._resumed_at = resumed_at
        self._begun = False
        self._closed = False

    def begin(self) -> None:
        """Drop the records that will be measured again, and an unfinished last line of a killed run.

        The first :meth:`write` does so as well.
        """
        if self._begun:
            return
        self._begun = True
        last, saved, self.records = self._resumed_at, self.records, 0
        if not self._path.exists():
            return
        if last is not None:
            self.records = _rewrite(
                self._path,
                keep=lambda number, record: (saved is None or number < saved) and (record.get("steps") or 0) <= last,
            )
        elif not (content := self._path.read_bytes()).endswith(b"\n"):
            # Else the next record would be appended to the unfinished line.
            self.records = _rewrite(self._path, keep=lambda number, record: True)
        else:
            self.records = sum(line != b"\n" for line in content.splitlines(keepends=True))

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
        assert self.records is not None
        self.records += 1

    def close(self) -> None:
        """Refuse further records."""
        self._closed = True


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read all records of a run, nulls as NaN; an unfinished last line is left out.

    Args:
        path: a run folder, or its ``metrics.jsonl``.

    Raises:
        MetricsError: a line before the last is no JSON object of numbers.
    """
    file = Path(path)
    return [
        {name: math.nan if value is None else value for name, value in record.items()}
        for _, record in _records(RunFiles(file).metrics_file if file.is_dir() else file)
    ]


def _plain(value: float | int) -> float | int | None:
    """Convert a number for JSON: scalars of numpy and torch become Python's, NaN and infinity None."""
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
                    # A killed run did not finish it.
                    return
                raise MetricsError(
                    f"{path}, line {number} is no JSON object of numbers: {error}; remove the line, or restore the "
                    f"file from a copy"
                ) from error
            yield line.decode().rstrip("\n"), record


def _check(record: object) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"it is a {type(record).__name__}")
    for name, value in record.items():
        if not (value is None or isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)):
            raise ValueError(f"{name} is no number")


def _rewrite(path: Path, keep: Callable[[int, _Record], bool]) -> int:
    """Rewrite the file atomically with the records to keep, by number and content; return how many these are."""
    kept = 0
    with replacing(path, durable=True) as file:
        for number, (line, record) in enumerate(_records(path)):
            if keep(number, record):
                file.write(line.encode() + b"\n")
                kept += 1
    return kept
