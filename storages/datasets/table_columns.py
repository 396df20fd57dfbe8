"""The columns of CSV and Parquet files as arrays; nothing but the wanted columns of a Parquet file is read."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from storages.datasets.untrusted import MemoryBudget, package_needed
from storages.errors import DatasetError
from storages.transition import Array

_ASSUMED_BYTES = 8
"""Bytes of a number, where its type has no fixed width."""


class Columns(Protocol):
    """The columns of a table that are numbers, lists of numbers, or texts."""

    @property
    def unread(self) -> Sequence[str]:
        """Names of the other columns, such as those of times."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns, in order."""

    @property
    def texts(self) -> frozenset[str]:
        """Names of columns of text."""

    @property
    def booleans(self) -> frozenset[str]:
        """Names of columns of booleans."""

    def read(self, name: str) -> Array:
        """Read a column (N, ...), one of text as the numbers of its texts in :meth:`labels`."""

    def labels(self, name: str) -> list[str]:
        """Return the distinct texts of a column of text, sorted."""


class CsvColumns:
    """The columns of a CSV file with names in its first row, which is read as a whole.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        with package_needed("pyarrow", path):
            import pyarrow as pa
            from pyarrow import csv
        try:
            with path.open("rb") as file:
                # An open file is not decompressed by its name.
                self._table = csv.read_csv(file)
        except pa.ArrowException as error:
            raise DatasetError(f"{path} cannot be read as CSV: {' '.join(str(error).split())}") from error
        self._path = path
        kinds = {field.name: field.type for field in self._table.schema}
        if len(kinds) < len(self._table.schema):
            raise DatasetError(f"{path} has several columns of one name: {', '.join(self._table.schema.names)}")
        self.texts = frozenset(name for name, kind in kinds.items() if _is_text(pa.types, kind))
        self.booleans = frozenset(name for name, kind in kinds.items() if pa.types.is_boolean(kind))
        self.names = [name for name, kind in kinds.items() if name in self.texts or _is_numeric(pa.types, kind)]
        self.unread = [name for name in kinds if name not in self.names]

    def read(self, name: str) -> Array:
        """Return a column (N,)."""
        where, column = f"{self._path}: {name}", self._table.column(name)
        return _numbered(column.dictionary_encode(), where)[0] if name in self.texts else _as_array(column, where)

    def labels(self, name: str) -> list[str]:
        """Return the distinct texts of a column of text, sorted."""
        return _numbered(self._table.column(name).dictionary_encode(), f"{self._path}: {name}")[1]


class ParquetColumns:
    """The columns of Parquet files, whose rows are concatenated.

    Args:
        path: the file or the folder, for errors.
        files: the files, which must have the same columns.
    """

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        with package_needed("pyarrow", path):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._path, self._files, self._budget = path, files, MemoryBudget(path)
        self._arrow, self._parquet = pa, pq
        kinds = dict(_leaves(pa.types, self._open(files[0]).schema_arrow))
        self.texts = frozenset(name for name, kind in kinds.items() if _is_text(pa.types, kind))
        self.booleans = frozenset(name for name, kind in kinds.items() if pa.types.is_boolean(kind))
        self.names = [name for name, kind in kinds.items() if name in self.texts or _is_numeric(pa.types, kind)]
        self.unread = [name for name in kinds if name not in self.names]

    def read(self, name: str) -> Array:
        """Read a column (N, ...) of all files."""
        where, column = f"{self._path}: {name}", self._read(name)
        return _numbered(column, where)[0] if name in self.texts else _as_array(column, where)

    def labels(self, name: str) -> list[str]:
        """Return the distinct texts of a column of text, sorted."""
        return _numbered(self._read(name), f"{self._path}: {name}")[1]

    def _read(self, name: str) -> Any:
        # Texts stay codes of distinct ones: a text that repeats takes its bytes once.
        dictionary = [name] if name in self.texts else None
        chunks: list[Any] = []
        try:
            for path in self._files:
                file = self._open(path, dictionary)
                nbytes = bytes_of_columns(file.metadata, [name])
                if nbytes is None:
                    raise DatasetError(f"{path} lacks {name}; it has {', '.join(file.schema_arrow.names)}")
                self._budget.take(nbytes, name)
                table = file.read(columns=[name])
                table.validate(full=True)
                chunks += self._column(table, name).chunks
        except (OSError, self._arrow.ArrowException) as error:
            raise DatasetError(f"{self._path}: {name} cannot be read: {' '.join(str(error).split())}") from error
        kinds = {chunk.type for chunk in chunks}
        if len(kinds) > 1:
            raise DatasetError(f"{self._path}: {name} has different types in its files: {sorted(map(str, kinds))}")
        return self._arrow.chunked_array(chunks)

    @cached_property
    def metadata(self) -> Any:
        """The metadata of the schema of the first file, by key, both bytes."""
        return self._open(self._files[0]).schema_arrow.metadata or {}

    def _open(self, path: Path, read_dictionary: list[str] | None = None) -> Any:
        try:
            return self._parquet.ParquetFile(path, read_dictionary=read_dictionary)
        except (OSError, self._arrow.ArrowException) as error:
            raise DatasetError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}") from error

    def _column(self, table: Any, name: str) -> Any:
        if name in table.column_names:
            return table.column(name)
        first, *others = name.split(".")
        array = table.column(first).combine_chunks()
        for other in others:
            array = array.field(other)
        return self._arrow.chunked_array([array])


def bytes_of_columns(metadata: Any, names: Iterable[str]) -> int | None:
    """Return the bytes of memory for reading columns of a Parquet file; None if it lacks one.

    Args:
        metadata: the metadata of the file.
        names: of columns, or of fields of structs, joined by dots.
    """
    total = 0
    for name in names:
        leaves = [
            leaf
            for leaf in range(metadata.num_columns)
            if metadata.schema.column(leaf).path == name or metadata.schema.column(leaf).path.startswith(f"{name}.")
        ]
        if not leaves:
            return None
        for group in range(metadata.num_row_groups):
            for leaf in leaves:
                chunk = metadata.row_group(group).column(leaf)
                # A value is decoded from as little as a bit, and pages are decompressed one after the other.
                width = _ASSUMED_BYTES if chunk.physical_type != "BOOLEAN" else 1
                total += max(chunk.num_values * width, chunk.total_uncompressed_size)
    return total


def _leaves(types: Any, fields: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields:
        if types.is_struct(field.type):
            yield from _leaves(types, field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.type


def _is_text(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_numeric(types: Any, kind: Any) -> bool:
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _as_array(column: Any, where: str) -> Array:
    """Return a column as an array (N, ...).

    Raises:
        DatasetError: values are missing, or lists have different lengths.
    """
    import pyarrow as pa

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    shape = [len(array)]
    while pa.types.is_nested(array.type):
        _refuse_missing(array, where)
        if pa.types.is_fixed_size_list(array.type):
            length = array.type.list_size
        else:
            lengths = np.diff(array.offsets.to_numpy())
            if len(lengths) and (lengths != lengths[0]).any():
                raise DatasetError(
                    f"{where} has lists of {lengths.min()} to {lengths.max()} numbers; give all the same"
                )
            length = int(lengths[0]) if len(lengths) else 0
        shape.append(length)
        array = array.flatten()
    _refuse_missing(array, where)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values.reshape(shape)


def _numbered(column: Any, where: str) -> tuple[Array, list[str]]:
    """Return a column of a dictionary's texts as numbers (N,), and the texts that occur, sorted.

    Raises:
        DatasetError: texts are missing.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        # Files of several types are read without dictionaries.
        column = column.dictionary_encode()
    chunks = column.unify_dictionaries().chunks
    codes = _as_array(pa.chunked_array([chunk.indices for chunk in chunks], column.type.index_type), where)
    occurring, codes = np.unique(codes, return_inverse=True)
    texts = np.array(chunks[0].dictionary.to_pylist() if chunks else [], object)[occurring]
    order = np.argsort(texts)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[codes.reshape(-1)], [str(text) for text in texts[order]]


def _refuse_missing(array: Any, where: str) -> None:
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise DatasetError(f"{where} has {array.null_count:,} missing values, the first in row {row}; fill them in")
