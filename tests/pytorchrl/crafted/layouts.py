"""Crafted files of other libraries' layouts."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.pytorchrl.crafted.case import Base, Case
from tests.support.layouts import LAYOUTS


def _changed(name: str, change: Callable[[Path], None]) -> Callable[[Base, Path], Path]:
    """An intact file of a layout with a change."""

    def make(base: Base, folder: Path) -> Path:
        path = LAYOUTS[name].made(folder)
        change(path)
        return path

    return make


def _many_rows(path: Path) -> None:
    rows = 100_000
    numbers = dict.fromkeys(("observation", "action", "reward", "episode"), np.zeros(rows))
    table = pa.table(numbers)
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(60):
            writer.write_table(table)


def _ragged(path: Path) -> None:
    path.write_text(path.read_text() + "1,2\n")


def _table_elsewhere(path: Path) -> None:
    file = next(path.rglob("*.parquet"))
    file.rename(path.parent / "elsewhere.parquet")
    file.symlink_to(path.parent / "elsewhere.parquet")


def _group_elsewhere(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.copy("data/demo_0", h5py.File(path.with_name("other.h5"), "w"))
        del file["data/demo_0"]
        file["data/demo_0"] = h5py.ExternalLink("other.h5", "/demo_0")


def _many_episodes(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["num_episodes"]
        file["num_episodes"] = 10**12


def _rows_never_written(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["data/demo_0/actions"]
        file.create_dataset("data/demo_0/actions", (10**11, 1), "f4", chunks=(1000, 1))


CASES = [
    Case(name, _changed(layout, change), "data set")
    for name, layout, change in (
        ("a small table of many rows", "Parquet", _many_rows),
        ("a row of fewer columns", "CSV", _ragged),
        ("a table that is a link", "LeRobot", _table_elsewhere),
        ("an episode in another file", "robomimic", _group_elsewhere),
        ("10^12 episodes", "d3rlpy 2", _many_episodes),
        ("rows that were never written", "robomimic", _rows_never_written),
    )
]
