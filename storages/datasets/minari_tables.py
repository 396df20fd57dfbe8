"""Reading of an Arrow or Parquet table within the memory that its file justifies.

Texts of infos are not read: a text that repeats is kept once in a Parquet file, and takes its bytes in each row.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from storages.datasets.table_columns import bytes_of_columns
from storages.datasets.untrusted import MemoryBudget
from storages.errors import DatasetError

_MAGIC_BYTES = 8
_BUFFER, _LENGTH = struct.Struct("<qq"), struct.Struct("<q")
_OFFSET, _BACK, _TABLE, _SLOT = (struct.Struct(f"<{code}") for code in ("I", "i", "HH", "H"))
"""Parts of a flatbuffer."""
_HEADER, _DATA_OF_DICTIONARY, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Numbers of fields in Arrow's schema of messages."""
_INFOS = "infos"


def read_parquet(path: Path, wanted: Sequence[tuple[str, ...]], budget: MemoryBudget) -> Any:
    """Read columns of a Parquet file, and its infos of fixed width.

    Args:
        path: the file.
        wanted: names of columns, and of fields of structs.
        budget: the memory that may be taken.

    Raises:
        DatasetError: the columns take more memory than the file justifies.
    """
    import pyarrow.parquet as pq
    from pyarrow import types

    schema = pq.read_schema(path)
    names = [".".join(key) for key in wanted] + [
        f"{_INFOS}.{field.name}" for field in _fields_of(types, schema, _INFOS) if _has_fixed_width(types, field.type)
    ]
    # Encoded images stay numbers of distinct ones.
    images = [name for name in names if _is_binary(types, schema, name)]
    file = pq.ParquetFile(path, read_dictionary=images or None)
    there = [name for name in names if bytes_of_columns(file.metadata, [name]) is not None]
    budget.take(bytes_of_columns(file.metadata, there) or 0, f"{path.parent.name}/{path.name}")
    return file.read(columns=there)


def read_arrow(path: Path, wanted: Sequence[tuple[str, ...]], budget: MemoryBudget) -> Any:
    """Read columns of an Arrow file, and its infos, as :func:`read_parquet` does."""
    import pyarrow as pa

    # Not mapped into memory: a file that is overwritten meanwhile would end the process.
    budget.take(_bytes_of_batches(path), f"{path.parent.name}/{path.name}")
    with pa.OSFile(str(path)) as source:
        schema = pa.ipc.open_file(source).schema
        names = {key[0] for key in wanted} | {_INFOS}
        positions = [position for position, name in enumerate(schema.names) if name in names]
        options = pa.ipc.IpcReadOptions(included_fields=positions)
        return pa.ipc.open_file(source, options=options).read_all()


def _fields_of(types: Any, schema: Any, name: str) -> Iterator[Any]:
    if name in schema.names and types.is_struct(schema.field(name).type):
        yield from schema.field(name).type


def _is_binary(types: Any, schema: Any, name: str) -> bool:
    first, *others = name.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for other in others:
        position = kind.get_field_index(other) if kind is not None and types.is_struct(kind) else -1
        kind = kind[position].type if kind is not None and position >= 0 else None
    return kind is not None and bool(types.is_binary(kind))


def _has_fixed_width(types: Any, kind: Any) -> bool:
    while types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(types.is_primitive(kind))


def _bytes_of_batches(path: Path) -> int:
    """Return the bytes of all batches of an Arrow file after they are decompressed.

    The length of a compressed buffer is told by its first eight bytes, and by nothing that pyarrow shows.

    Raises:
        DatasetError: a batch is damaged.
    """
    import pyarrow as pa

    total = 0
    with pa.OSFile(str(path)) as source:
        source.seek(_MAGIC_BYTES)
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type not in ("record batch", "dictionary"):
                continue
            body, metadata = message.body, message.metadata.to_pybytes()
            compressed, buffers = _buffers_of(metadata, in_dictionary=message.type == "dictionary")
            for offset, length in buffers:
                if not 0 <= offset <= offset + length <= body.size:
                    raise DatasetError(f"{path} is damaged: a batch has values outside of it")
                told = -1
                if compressed and length >= _LENGTH.size:
                    (told,) = _LENGTH.unpack(body.slice(offset, _LENGTH.size).to_pybytes())
                total += max(told, length)
    return total


def _buffers_of(metadata: bytes, *, in_dictionary: bool) -> tuple[bool, list[tuple[int, int]]]:
    """Return whether a batch is compressed, and the offsets and lengths of its buffers, from its flatbuffer."""
    batch = _table_at(metadata, _table_at(metadata, 0), _HEADER)
    if in_dictionary:
        batch = _table_at(metadata, batch, _DATA_OF_DICTIONARY)
    place = _field_at(metadata, batch, _BUFFERS)
    if place is None:
        return False, []
    begin = place + _OFFSET.unpack_from(metadata, place)[0]
    (count,) = _OFFSET.unpack_from(metadata, begin)
    end = begin + _OFFSET.size + count * _BUFFER.size
    if end > len(metadata):
        raise struct.error("a vector beyond the end")
    found = list(_BUFFER.iter_unpack(metadata[begin + _OFFSET.size : end]))
    return _field_at(metadata, batch, _COMPRESSION) is not None, found


def _table_at(metadata: bytes, place: int, field: int | None = None) -> int:
    """Return the place of the table that a place, or the field of a table there, refers to."""
    at = place if field is None else _field_at(metadata, place, field)
    if at is None:
        raise struct.error("a table without a needed field")
    offset: int = _OFFSET.unpack_from(metadata, at)[0]
    return at + offset


def _field_at(metadata: bytes, table: int, field: int) -> int | None:
    """Return the place of a field of a table; None where it has its default."""
    (back,) = _BACK.unpack_from(metadata, table)
    size, _ = _TABLE.unpack_from(metadata, table - back)
    slot = _TABLE.size + field * _SLOT.size
    if slot >= size:
        return None
    (offset,) = _SLOT.unpack_from(metadata, table - back + slot)
    return table + offset if offset else None
