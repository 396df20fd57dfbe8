"""Minari's Arrow and Parquet layouts: a folder for each episode, with a table of a row a step, and one more.

Rows of arrays are lists of fixed size; what has no value after the last step (actions, rewards) has a row of zeros.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.datasets.budget import MemoryBudget
from storages.datasets.dataset import needs_package
from storages.datasets.minari_columns import Columns, ColumnsReader, ColumnsWriter, Key
from storages.datasets.pictures import from_jpeg
from storages.datasets.spaces import Leaf
from storages.errors import DatasetError
from storages.persistent.log.files import read_text
from storages.transition import Array

_FACTS = "metadata.json"
_WITH_LAST = ("observations", "infos")
"""Of which there is a value after the last step, too."""


class ArrowReader(ColumnsReader):
    """Reads them.

    Args:
        folder: where the folders of episodes are.
        layout: "arrow" or "parquet".
    """

    def __init__(self, folder: Path, layout: str) -> None:
        self._folder, self._layout = folder, layout
        self._arrow, self._tables = _pyarrow(folder)
        self._budget = MemoryBudget(folder)

    def numbers(self) -> list[int]:
        """Which episodes there are."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.is_dir() and path.name.isdecimal())

    def read(self, number: int, leaves: Mapping[Key, Leaf | None], jpeg: bool) -> tuple[Columns, dict[str, Any]]:
        """One of them."""
        folder = self._folder / str(number)
        try:
            files = sorted(str(file) for file in folder.glob(f"*.{self._layout}"))
            episode = self._tables.dataset(files, format=self._layout)
            self._budget.take(episode.count_rows() * _row_bytes(self._arrow.types, episode.schema), f"episode {number}")
            table = episode.to_table()
            # What says of itself that it is longer than what is there must not be read.
            table.validate(full=True)
            table = table.combine_chunks()
            facts = json.loads(read_text(folder / _FACTS))
        except (OSError, ValueError, self._arrow.ArrowException) as error:
            raise DatasetError(f"{folder} cannot be read: {' '.join(str(error).split())}") from error
        columns: Columns = {}
        for key, leaf in leaves.items():
            array = self._found(table, key, folder)
            values = self._decoded(array, leaf, jpeg, f"{folder}: {'/'.join(map(str, key))}")
            columns[key] = values if key[0] in _WITH_LAST else values[:-1]
        if "infos" in table.column_names:
            columns |= self._infos(table, folder)
        return columns, {"seed": int(facts["seed"])} if isinstance(facts.get("seed"), int) else {}

    def close(self) -> None:
        """Nothing is held."""

    def _found(self, table: Any, key: Key, folder: Path) -> Any:
        first, *others = map(str, key)
        if first not in table.column_names:
            raise DatasetError(f"{folder} lacks {first}; it has {', '.join(table.column_names)}")
        array = table.column(first).combine_chunks()
        for name in others:
            if not self._arrow.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
                raise DatasetError(f"{folder} lacks {'/'.join(map(str, key))}; {first} is {array.type}")
            array = array.field(name)
        return array

    def _decoded(self, array: Any, leaf: Leaf | None, jpeg: bool, where: str) -> Array:
        types = self._arrow.types
        if leaf is not None and leaf.is_image and jpeg:
            if not types.is_binary(array.type):
                raise DatasetError(f"{where} is to be bytes of pictures, and is {array.type}")
            return from_jpeg(array.to_pylist(), leaf.shape, self._budget, where)
        shape = () if leaf is None else leaf.shape
        flat = array
        if types.is_fixed_size_list(array.type):
            flat = array.flatten()
        if not _is_numbers(types, flat.type) or flat.null_count:
            raise DatasetError(f"{where} is {array.type}; nothing but numbers is read, and none may be missing")
        if len(flat) != len(array) * int(np.prod(shape)):
            raise DatasetError(f"{where} is {array.type}, the space says shape {shape}")
        values: Array = flat.to_numpy(zero_copy_only=False).reshape(len(array), *shape)
        return values

    def _infos(self, table: Any, folder: Path) -> Columns:
        infos, types = table.column("infos").combine_chunks(), self._arrow.types
        columns: Columns = {}
        for position, field in enumerate(infos.type):
            array = infos.field(position)
            flat = array.flatten() if types.is_fixed_size_list(array.type) else array
            if _is_numbers(types, flat.type) and not flat.null_count:
                said = (field.metadata or {}).get(b"shape", b"").decode()
                shape = tuple(map(int, said.split(","))) if said else ()
                columns[("infos", field.name)] = flat.to_numpy(zero_copy_only=False).reshape(len(array), *shape)
        return columns


class ArrowWriter(ColumnsWriter):
    """Writes Arrow files.

    Args:
        folder: where the folders of episodes are to be.
    """

    layout: ClassVar[str] = "arrow"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrow, self._tables = _pyarrow(folder)

    def write(self, number: int, columns: Columns, facts: Mapping[str, Any]) -> None:
        """One more episode."""
        folder = self._folder / str(number)
        steps = len(columns[("rewards",)])
        tree: dict[str, Any] = {}
        for key, array in columns.items():
            *groups, last = map(str, key)
            inner = tree
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[last] = array if len(array) > steps else np.concatenate([array, np.zeros_like(array[:1])])
        batch = self._arrow.table({name: self._encoded(value) for name, value in tree.items()})
        self._tables.write_dataset(
            batch, folder, format=self.layout, basename_template=f"part-{{i}}.{self.layout}", create_dir=True
        )
        told = {"id": number, "total_steps": steps, **facts}
        (folder / _FACTS).write_text(json.dumps(told), encoding="utf-8")

    def close(self) -> None:
        """Nothing is held."""

    def _encoded(self, value: Any) -> Any:
        arrow = self._arrow
        if isinstance(value, dict):
            arrays = [self._encoded(part) for part in value.values()]
            fields = [
                arrow.field(name, array.type, metadata=_shape_as_metadata(part))
                for (name, part), array in zip(value.items(), arrays, strict=True)
            ]
            return arrow.StructArray.from_arrays(arrays, fields=fields)
        flat = arrow.array(np.ascontiguousarray(value).reshape(-1))
        if value.ndim == 1:
            return flat
        return arrow.FixedSizeListArray.from_arrays(flat, int(np.prod(value.shape[1:])))


class ParquetWriter(ArrowWriter):
    """Writes Parquet files, which are smaller.

    Args:
        folder: where the folders of episodes are to be.
    """

    layout = "parquet"


def _shape_as_metadata(value: Any) -> dict[str, str] | None:
    """As Minari says the shapes of infos."""
    if isinstance(value, dict) or value.ndim == 1:
        return None
    return {"shape": ",".join(map(str, value.shape[1:]))}


def _row_bytes(types: Any, kind: Any) -> int:
    """Bytes of a row, of all that has a fixed length."""
    if isinstance(kind, Iterable):
        return sum(_row_bytes(types, field.type) for field in kind)
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * _row_bytes(types, kind.value_type)
    return -(-kind.bit_width // 8) if types.is_primitive(kind) else 1


def _is_numbers(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _pyarrow(what: object) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.dataset as tables
    except ModuleNotFoundError:
        raise needs_package("pyarrow", what) from None
    return pa, tables
