"""Data sets of LeRobot: a folder with ``meta/info.json`` and Parquet tables of frames in ``data``.

Observations are the numeric columns ``observation.*``; videos are not read. Final observations are not recorded, and
nothing says whether an episode terminated. A data set without ``next.reward`` has no rewards.
"""

from pathlib import Path
from typing import ClassVar

from storages.datasets.answers import Answers
from storages.datasets.flat import FLAT_ANSWERS, FlatDataset
from storages.datasets.table_columns import ParquetColumns
from storages.datasets.tables import TableArrays
from storages.errors import DatasetError
from storages.persistent.log.files import refuse_links_in

_INFO, _DATA = Path("meta", "info.json"), "data"


class LeRobotDataset(FlatDataset):
    """A folder of LeRobot's, of its versions 2 and 3.

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
