"""The files of Minari's data sets: one HDF5 file, or a folder with an Arrow or Parquet table for each episode.

Minari's own package is not used: it follows links out of the folder, allocates as much memory as a file claims, and in
Arrow and Parquet it silently cuts episodes of more than 32,767 rows, and needs time quadratic in the number of episodes
to write them.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from storages.datasets import minari_tables
from storages.datasets.spaces import SpaceLeaf
from storages.datasets.untrusted import (
    MemoryBudget,
    child_node,
    create_hdf5,
    find_node,
    is_bytes,
    is_numeric,
    nbytes_of,
    numbers,
    open_hdf5,
    package_needed,
)
from storages.errors import AmbiguousDataError, DatasetError
from storages.files import read_text
from storages.transition import Array

ColumnKey: TypeAlias = tuple[str | int, ...]
"""("observations", *path), ("actions",), ("rewards",), ("terminations",), ("truncations",), ("infos", name)."""
EpisodeColumns: TypeAlias = dict[ColumnKey, Array]
"""Arrays of an episode of L steps: (L + 1, ...) of observations and infos, else (L, ...)."""
LAYOUTS = ("hdf5", "arrow", "parquet")
"""Minari's names of the layouts."""
_HDF5_FILE = "main_data.hdf5"
_EPISODE_METADATA = "metadata.json"
_WITH_LAST = ("observations", "infos")
"""Columns with a value after the last step."""


class Hdf5Episodes:
    """Reads or writes ``main_data.hdf5``, which has a group for each episode.

    Args:
        folder: the folder of the file.
        write: make a new file, instead of reading one.
    """

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self._path = folder / _HDF5_FILE
        self._file = create_hdf5(self._path) if write else open_hdf5(self._path)
        self._budget = MemoryBudget(self._path)

    def numbers(self) -> list[int]:
        """Return the numbers of the episodes, in order."""
        named = (name.removeprefix("episode_") for name in self._file if name.startswith("episode_"))
        return sorted(int(number) for number in named if number.isdecimal())

    def read(
        self, number: int, wanted: Mapping[ColumnKey, SpaceLeaf | None], jpeg: bool
    ) -> tuple[EpisodeColumns, dict[str, Any]]:
        """Read an episode.

        Args:
            number: number of the episode.
            wanted: columns to read, each with its leaf of a space, if any; numeric infos are read as well.
            jpeg: whether images are JPEG.

        Returns:
            The columns, and facts about the episode.

        Raises:
            DatasetError: a column is missing or not numeric.
        """
        where = f"{self._path}: episode_{number}"
        group = find_node(self._file, [f"episode_{number}"], str(self._path))
        columns: EpisodeColumns = {}
        there = list(group) if hasattr(group, "keys") else []
        for key, leaf in wanted.items():
            if key[0] not in there:
                raise _lacking(key, there, where)
            node = find_node(group, _hdf5_names(key), where)
            is_jpeg = leaf is not None and leaf.is_image and jpeg
            columns[key] = self._images(node, leaf.shape, where) if leaf and is_jpeg else self._numbers(node, where)
        infos = child_node(group, "infos", where)
        for name in () if infos is None else infos:
            node = child_node(infos, name, where)
            if is_numeric(node):
                columns[("infos", name)] = self._numbers(node, where)
        seed = group.attrs.get("seed")
        return columns, {"seed": int(seed)} if isinstance(seed, int | np.integer) else {}

    def write(self, number: int, columns: EpisodeColumns, facts: Mapping[str, Any]) -> None:
        """Write an episode."""
        group = self._file.create_group(f"episode_{number}")
        group.attrs.update({"id": number, "total_steps": len(columns[("rewards",)]), **facts})
        # Minari needs the group of infos even if it is empty.
        group.create_group("infos")
        for key, array in columns.items():
            group.create_dataset("/".join(_hdf5_names(key)), data=array)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _numbers(self, node: Any, where: str) -> Array:
        self._budget.take(nbytes_of(numbers(node, where)), str(node.name))
        array: Array = node[()]
        return array

    def _images(self, node: Any, shape: tuple[int, ...], where: str) -> Array:
        if not is_bytes(node):
            raise DatasetError(f"{where}: {node.name} must contain encoded images, but does not")
        self._budget.take(nbytes_of(node), str(node.name))
        images = [bytes(row) for row in node[()]]
        return _decode_jpegs(images, len(images), shape, self._budget, where)


class TableEpisodes:
    """Reads or writes a folder with an Arrow or Parquet table for each episode.

    A table has a row for each step, and one more for final observations, which is zero in columns without final values.
    Rows of arrays are lists of fixed size.

    Args:
        folder: the folder of the episodes' folders.
        layout: "arrow" or "parquet".
    """

    def __init__(self, folder: Path, layout: str) -> None:
        self._folder, self._layout = folder, layout
        with package_needed("pyarrow", folder):
            import pyarrow as pa
            import pyarrow.dataset as tables
        self._arrow: Any = pa
        self._tables: Any = tables
        self._read = minari_tables.read_parquet if layout == "parquet" else minari_tables.read_arrow
        self._budget = MemoryBudget(folder)

    def numbers(self) -> list[int]:
        """Return the numbers of the episodes, in order."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.is_dir() and path.name.isdecimal())

    def read(
        self, number: int, wanted: Mapping[ColumnKey, SpaceLeaf | None], jpeg: bool
    ) -> tuple[EpisodeColumns, dict[str, Any]]:
        """Read an episode, as :meth:`Hdf5Episodes.read` does."""
        folder = self._folder / str(number)
        try:
            table = self._table(folder, [tuple(map(str, key)) for key in wanted])
            facts = json.loads(read_text(folder / _EPISODE_METADATA))
        except (OSError, ValueError, self._arrow.ArrowException) as error:
            raise DatasetError(f"{folder} cannot be read: {' '.join(str(error).split())}") from error
        columns: EpisodeColumns = {}
        for key, leaf in wanted.items():
            where = f"{folder}: {'/'.join(map(str, key))}"
            values = self._values(self._find(table, key, folder), leaf, jpeg, where)
            columns[key] = values if key[0] in _WITH_LAST else values[:-1]
        if "infos" in table.column_names:
            columns |= self._infos(table.column("infos").combine_chunks())
        return columns, {"seed": int(facts["seed"])} if isinstance(facts.get("seed"), int) else {}

    def write(self, number: int, columns: EpisodeColumns, facts: Mapping[str, Any]) -> None:
        """Write an episode."""
        folder = self._folder / str(number)
        steps = len(columns[("rewards",)])
        tree: dict[str, Any] = {}
        for key, array in columns.items():
            *groups, last = map(str, key)
            inner = tree
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[last] = array if len(array) > steps else np.concatenate([array, np.zeros_like(array[:1])])
        table = self._arrow.table({name: self._encoded(value) for name, value in tree.items()})
        self._tables.write_dataset(
            table, folder, format=self._layout, basename_template=f"part-{{i}}.{self._layout}", create_dir=True
        )
        metadata = {"id": number, "total_steps": steps, **facts}
        (folder / _EPISODE_METADATA).write_text(json.dumps(metadata), encoding="utf-8")

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _table(self, folder: Path, wanted: Sequence[tuple[str, ...]]) -> Any:
        """Read wanted columns, and infos of fixed width."""
        parts = [self._read(Path(file), wanted, self._budget) for file in self._files(folder)]
        table = self._arrow.concat_tables(parts)
        # A crafted table may have offsets beyond its end.
        table.validate(full=True)
        return table.combine_chunks()

    def _files(self, folder: Path) -> list[str]:
        return sorted(str(file) for file in folder.glob(f"*.{self._layout}"))

    def _find(self, table: Any, key: ColumnKey, folder: Path) -> Any:
        first, *others = map(str, key)
        if first not in table.column_names:
            schema = self._tables.dataset(self._files(folder), format=self._layout).schema
            raise _lacking(key, schema.names, folder)
        array = table.column(first).combine_chunks()
        for name in others:
            if not self._arrow.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
                raise DatasetError(f"{folder} lacks {'/'.join(map(str, key))}; {first} is {array.type}")
            array = array.field(name)
        return array

    def _values(self, array: Any, leaf: SpaceLeaf | None, jpeg: bool, where: str) -> Array:
        if leaf is not None and leaf.is_image and jpeg:
            types = self._arrow.types
            kind = array.type.value_type if types.is_dictionary(array.type) else array.type
            if not types.is_binary(kind) or array.null_count:
                raise DatasetError(f"{where} must contain encoded images, but is {array.type}")
            return _decode_jpegs((image.as_py() for image in array), len(array), leaf.shape, self._budget, where)
        shape = () if leaf is None else leaf.shape
        flat = self._flat_numbers(array)
        if flat is None:
            raise DatasetError(f"{where} is {array.type}; only numbers are read, without missing values")
        if len(flat) != len(array) * math.prod(shape):
            raise DatasetError(f"{where} is {array.type}, the space says shape {shape}")
        return flat.reshape(len(array), *shape)

    def _infos(self, infos: Any) -> EpisodeColumns:
        columns: EpisodeColumns = {}
        for position, field in enumerate(infos.type):
            array = infos.field(position)
            if (flat := self._flat_numbers(array)) is not None:
                said = (field.metadata or {}).get(b"shape", b"").decode()
                shape = tuple(map(int, said.split(","))) if said else ()
                columns[("infos", field.name)] = flat.reshape(len(array), *shape)
        return columns

    def _flat_numbers(self, array: Any) -> Array | None:
        """Return a column as a flat array; None if it is not numeric, or has null values."""
        types = self._arrow.types
        flat = array.flatten() if types.is_fixed_size_list(array.type) else array
        is_numeric = types.is_integer(flat.type) or types.is_floating(flat.type) or types.is_boolean(flat.type)
        return flat.to_numpy(zero_copy_only=False) if is_numeric and not flat.null_count else None

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
        return arrow.FixedSizeListArray.from_arrays(flat, math.prod(value.shape[1:]))


def files_of(folder: Path, layout: str, *, write: bool = False) -> Hdf5Episodes | TableEpisodes:
    """Open the files of a data set in one of :data:`LAYOUTS`, for reading or writing."""
    return Hdf5Episodes(folder, write=write) if layout == "hdf5" else TableEpisodes(folder, layout)


def _hdf5_names(key: ColumnKey) -> list[str]:
    return [f"_index_{part}" if isinstance(part, int) else part for part in key]


def _shape_as_metadata(value: Any) -> dict[str, str] | None:
    """Return the shape of an info as column metadata, in Minari's format."""
    if isinstance(value, dict) or value.ndim == 1:
        return None
    return {"shape": ",".join(map(str, value.shape[1:]))}


def _lacking(key: ColumnKey, there: Iterable[str], where: object) -> DatasetError:
    """Return the error for a column that an episode lacks."""
    is_flag = key[0] not in ("observations", "actions", "rewards")
    answer = "; name its flags by names=FlatNames(terminals=..., timeouts=...), in commands --names" if is_flag else ""
    text = f"{where} lacks {'/'.join(map(str, key))}; it has {', '.join(there)}{answer}"
    return AmbiguousDataError(text) if is_flag else DatasetError(text)


def _decode_jpegs(
    images: Iterable[bytes], count: int, shape: tuple[int, ...], budget: MemoryBudget, where: str
) -> Array:
    """Decode JPEG images to an array (L, *shape), uint8.

    Raises:
        DatasetError: an image is no JPEG, or has another shape.
    """
    with package_needed("pillow", where):
        from PIL import Image
    budget.take(count * math.prod(shape), "the images")
    decoded = []
    try:
        for encoded in images:
            image = Image.open(io.BytesIO(encoded), formats=["JPEG"])
            # Before decoding, which allocates memory for the size in the header.
            if (image.height, image.width) != shape[:2]:
                raise ValueError(f"it is {image.height} x {image.width}, the space says {shape}")
            decoded.append(np.array(image, np.uint8))
        return np.stack(decoded)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{where}: an image cannot be read: {error}") from error
