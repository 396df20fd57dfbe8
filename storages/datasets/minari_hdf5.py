"""Minari's HDF5 layout: one file, ``main_data.hdf5``, with a group for each episode."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.datasets import hdf5
from storages.datasets.budget import MemoryBudget
from storages.datasets.minari_columns import Columns, ColumnsReader, ColumnsWriter, Key
from storages.datasets.spaces import Leaf
from storages.transition import Array

_FILE = "main_data.hdf5"


class Hdf5Reader(ColumnsReader):
    """Reads it.

    Args:
        folder: where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._file = hdf5.opened(self._path)
        self._budget = MemoryBudget(self._path)

    def numbers(self) -> list[int]:
        """Which episodes there are."""
        named = (name.removeprefix("episode_") for name in self._file if name.startswith("episode_"))
        return sorted(int(number) for number in named if number.isdecimal())

    def read(self, number: int, leaves: Mapping[Key, Leaf | None], jpeg: bool) -> tuple[Columns, dict[str, Any]]:
        """One of them."""
        where = f"{self._path}: episode_{number}"
        group = hdf5.found(self._file, [f"episode_{number}"], str(self._path))
        columns: Columns = {}
        for key, leaf in leaves.items():
            node = hdf5.found(group, _names(key), where)
            if leaf is not None and leaf.is_image and jpeg:
                columns[key] = hdf5.pictures(node, leaf.shape, self._budget, where)
            else:
                columns[key] = self._numbers(node, where)
        infos = hdf5.part(group, "infos", where)
        for name in () if infos is None else infos:
            node = hdf5.part(infos, name, where)
            if hdf5.is_numbers(node):
                columns[("infos", name)] = self._numbers(node, where)
        seed = group.attrs.get("seed")
        return columns, {"seed": int(seed)} if isinstance(seed, int | np.integer) else {}

    def _numbers(self, node: Any, where: str) -> Array:
        self._budget.take(hdf5.nbytes_of(hdf5.numbers(node, where)), str(node.name))
        array: Array = node[()]
        return array

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Hdf5Writer(ColumnsWriter):
    """Writes it.

    Args:
        folder: where the file is to be.
    """

    layout: ClassVar[str] = "hdf5"

    def __init__(self, folder: Path) -> None:
        self._file = hdf5.made(folder / _FILE)

    def write(self, number: int, columns: Columns, facts: Mapping[str, Any]) -> None:
        """One more episode."""
        group = self._file.create_group(f"episode_{number}")
        group.attrs.update({"id": number, "total_steps": len(columns[("rewards",)]), **facts})
        # Minari lists what is in it, though it be nothing.
        group.create_group("infos")
        for key, array in columns.items():
            group.create_dataset("/".join(_names(key)), data=array)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _names(key: Key) -> list[str]:
    return [f"_index_{part}" if isinstance(part, int) else part for part in key]
