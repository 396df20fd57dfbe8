"""Tables of steps: CSV and Parquet files, whose columns are flat arrays.

A column of lists of one length is an array (N, k). Columns that differ by a number at the end of their names, such as
``obs_0`` and ``obs_1``, are together the array of the name before it, ``obs``; columns with a common name before a dot,
such as ``observation.state``, are parts of it. Columns of text number episodes, or are discrete actions.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from storages.datasets.answers import Answers
from storages.datasets.columns import Joined
from storages.datasets.flat import FLAT_ANSWERS, FlatDataset
from storages.datasets.table_columns import Columns, CsvColumns, ParquetColumns
from storages.errors import DatasetError
from storages.files import refuse_links_in
from storages.transition import Array

SUFFIXES = (".csv", ".parquet")
_NUMBERED = re.compile(r"^(.+?)[_.\[]?(\d+)\]?$")
_INFO, _DATA = Path("meta", "info.json"), "data"
_Group: TypeAlias = dict[int, str]


class TableDataset(FlatDataset):
    """A CSV or Parquet file of steps.

    Args:
        path: the file.
        answers: what the user says about it.

    Raises:
        AmbiguousDataError: it is unknown what the columns mean, or where episodes end.
        DatasetError: a column is missing, or no column of numbers.
    """

    format: ClassVar[str] = "table"

    def __init__(self, path: Path, answers: Answers) -> None:
        answers.refuse_others(path, "a table", FLAT_ANSWERS)
        columns = CsvColumns(path) if path.suffix == SUFFIXES[0] else ParquetColumns(path, [path])
        super().__init__(path, TableArrays(columns, path), answers)
        self.layout = path.suffix.removeprefix(".")
        """"csv" or "parquet"."""


class TableArrays(Mapping[str, Any]):
    """The columns of a table as arrays, each read on first access.

    Args:
        columns: the columns.
        path: the file or the folder, for errors.
    """

    def __init__(self, columns: Columns, path: Path) -> None:
        self._columns, self._path = columns, path
        self._read: dict[str, Array] = {}
        numbered: dict[str, _Group] = {}
        self._groups: dict[str, list[str]] = {}
        for name in columns.names:
            if (match := _NUMBERED.match(name)) is not None and name not in columns.texts:
                numbered.setdefault(match[1], {})[int(match[2])] = name
            stem, dot, part = name.partition(".")
            if dot and not part.isdecimal() and name not in columns.texts:
                self._groups.setdefault(stem, []).append(name)
        self._joined = {
            stem: [group[number] for number in sorted(group)]
            for stem, group in numbered.items()
            if stem not in columns.names and sorted(group) in ([*range(len(group))], [*range(1, len(group) + 1)])
        }
        self._groups = {stem: names for stem, names in self._groups.items() if stem not in columns.names}

    def __getitem__(self, name: str) -> Any:
        if name in self._columns.names:
            return self._column(name)
        if name in self._joined:
            return Joined([self._column(part) for part in self._joined[name]])
        parts = {part.removeprefix(f"{name}."): part for part in self._groups[name]}
        arrays = {short: self._column(part) for short, part in parts.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

    def __iter__(self) -> Iterator[str]:
        yield from self._columns.names
        for name in dict.fromkeys([*self._joined, *self._groups]):
            if name not in self._columns.names:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def texts(self) -> frozenset[str]:
        """Names of columns of text, which are read as the numbers of their texts in :meth:`labels`."""
        return self._columns.texts

    @property
    def unread(self) -> list[str]:
        """Names of columns that are neither numbers nor texts, such as times."""
        return list(self._columns.unread)

    def labels(self, name: str) -> list[str]:
        """Return the distinct texts of a column of text, sorted."""
        return self._columns.labels(name)

    def columns_of(self, name: str) -> list[str]:
        """Return the names of the columns of an array."""
        if name in self._columns.names:
            return [name]
        return self._joined.get(name) or self._groups.get(name) or [name]

    def is_boolean(self, name: str) -> bool:
        """Whether a column holds booleans."""
        return name in self._columns.booleans

    def _column(self, name: str) -> Array:
        if name not in self._read:
            self._read[name] = self._columns.read(name)
        return self._read[name]


class LeRobotDataset(FlatDataset):
    """A folder of LeRobot's, versions 2 and 3: ``meta/info.json``, and Parquet tables of frames in ``data``.

    Observations are the numeric columns ``observation.*``; videos are not read. Final observations are not recorded,
    and nothing says whether an episode terminated. A data set without ``next.reward`` has no rewards.

    Args:
        path: the folder.
        answers: what the user says about it.

    Raises:
        AmbiguousDataError: there are no rewards, or no numbers of episodes.
        DatasetError: it holds no table, or a column is missing.
    """

    format: ClassVar[str] = "lerobot"

    def __init__(self, path: Path, answers: Answers) -> None:
        answers.refuse_others(path, "a data set of LeRobot", FLAT_ANSWERS)
        refuse_links_in(path)
        files = sorted((path / _DATA).rglob("*.parquet"))
        if not files:
            raise DatasetError(f"{path} is a data set of LeRobot without any table in {_DATA}")
        super().__init__(path, TableArrays(ParquetColumns(path, files), path), answers)


def is_lerobot(path: Path) -> bool:
    """Whether a folder is a data set of LeRobot."""
    return (path / _INFO).is_file() and (path / _DATA).is_dir()
