"""Records of a log: the unit that a commit writes, valid only as a whole.

A record consists of a header of fixed length with its own checksum, a line of JSON that lists the arrays, the arrays,
each padded to 8 bytes, and a checksum of everything but the header. An incomplete record at the end of a file is a torn
tail, which a killed process leaves; any other invalid record is corruption. After corruption, the next record is found
by its magic bytes.
"""

import json
import math
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from storages.core.ring.snapshot import ArrayKey, Fragments
from storages.system_calls import write_all
from storages.transition import Array

FORMAT = 5
"""Format version of records and manifests; no other version is read."""

_MAGIC = b"\x89records"
_HEADER = struct.Struct("<8sI4xQQQQQ")
"""Magic bytes, format, number of the commit, first step, number after the last step, bytes of JSON, bytes of arrays."""
_CHECKSUM = struct.Struct("<I4x")
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_ALIGNED = 8
SMALL_RECORD_BYTES = 1 << 20
"""Records up to this size are copied and written by one system call."""


@dataclass(frozen=True)
class Record:
    """Content of a record: one commit.

    Args:
        commit: its number, from 1.
        first: number of the first step that it holds.
        steps: number after the last step.
        facts: everything but arrays, as JSON can hold it.
        arrays: arrays by role and leaf.
    """

    commit: int
    first: int
    steps: int
    facts: dict[str, Any]
    arrays: dict[ArrayKey, Fragments]

    @property
    def begins_file(self) -> bool:
        """Whether it is the first record of a file, which holds the manifest."""
        return "manifest" in self.facts

    @property
    def small(self) -> bool:
        """Whether its arrays have at most :data:`SMALL_RECORD_BYTES`, and are cheap to copy."""
        return sum(piece.nbytes for pieces in self.arrays.values() for piece in pieces) <= SMALL_RECORD_BYTES


class StoredRecord(NamedTuple):
    """A record that was read from a file."""

    record: Record
    checksum: int
    end: int
    """Offset of its end in the file."""


class CorruptRange(NamedTuple):
    """Bytes of a file that are no valid record."""

    begin: int
    end: int
    cut: bool
    """Whether it is a torn tail, which recovery truncates, rather than corruption, which is an error."""
    first: int | None
    """Number of the first step in it; None if there is no valid header."""
    steps: int | None
    """Number after the last step in it; None if there is no valid header."""


def write(file: int, record: Record) -> tuple[int, int]:
    """Append a record to a file; return its length in bytes and its checksum."""
    header, text = _beginning(record)
    if record.small:
        content = b"".join([text, *_bytes_of_arrays(record)])
        checksum = zlib.crc32(content)
        whole = b"".join([header, content, _CHECKSUM.pack(checksum)])
        write_all(file, whole)
        return len(whole), checksum
    write_all(file, header + text)
    length, checksum = len(header) + len(text), zlib.crc32(text)
    for data in _bytes_of_arrays(record):
        checksum = zlib.crc32(data, checksum)
        length += len(data)
        write_all(file, data)
    write_all(file, _CHECKSUM.pack(checksum))
    return length + _CHECKSUM.size, checksum


def read(path: Path, most_bytes: int | None = None) -> Iterator[StoredRecord | CorruptRange]:
    """Read the records of a file in order, and the corrupt ranges between them.

    Args:
        path: the file.
        most_bytes: how many bytes to read while another process may be writing to the file; None for all.
    """
    data: bytes | mmap.mmap
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        if most_bytes is not None:
            # Not mapped: access to a mapped page raises SIGBUS once the other process has truncated the file.
            data = file.read(most_bytes)
            length = len(data)
        elif length:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if length == 0:
        return
    offset = 0
    while offset < length:
        header = _header_at(data, offset)
        if header is None:
            end = _next_header(data, offset + 1)
            # A power cut may leave a file that was extended, but whose end was never written.
            cut = length - offset < _HEADER_BYTES or (end == length and not data[offset:].strip(b"\0"))
            yield CorruptRange(offset, end, cut, None, None)
            offset = end
            continue
        _, _, commit, first, steps, text_bytes, arrays_bytes = header
        begin, end = offset + _HEADER_BYTES, offset + _HEADER_BYTES + text_bytes + arrays_bytes + _CHECKSUM.size
        if end > length:
            yield CorruptRange(offset, length, True, first, steps)
            return
        with memoryview(data) as view, view[begin : end - _CHECKSUM.size] as content:
            checksum = zlib.crc32(content)
        if _CHECKSUM.pack(checksum) == data[end - _CHECKSUM.size : end]:
            try:
                said = json.loads(data[begin : begin + text_bytes])
                facts = dict(**said["facts"])
                record = Record(commit, first, steps, facts, _arrays(data, begin + text_bytes, said["arrays"]))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError, SyntaxError):
                # A valid checksum does not protect from crafted content.
                yield CorruptRange(offset, end, False, first, steps)
            else:
                yield StoredRecord(record, checksum, end)
        else:
            # As above, with a part of the record written.
            cut = end == length and not data[end - _CHECKSUM.size : end].strip(b"\0")
            yield CorruptRange(offset, end, cut, first, steps)
        offset = end


def _header_at(data: bytes | mmap.mmap, offset: int) -> tuple[Any, ...] | None:
    header = data[offset : offset + _HEADER.size]
    checksum = data[offset + _HEADER.size : offset + _HEADER_BYTES]
    if header[: len(_MAGIC)] != _MAGIC or checksum != _CHECKSUM.pack(zlib.crc32(header)):
        return None
    fields = _HEADER.unpack(header)
    return fields if fields[1] == FORMAT else None


def _next_header(data: bytes | mmap.mmap, offset: int) -> int:
    while (offset := data.find(_MAGIC, offset)) >= 0:
        if _header_at(data, offset) is not None:
            return offset
        offset += 1
    return len(data)


def _arrays(data: bytes | mmap.mmap, offset: int, listed: list[Any]) -> dict[ArrayKey, Fragments]:
    arrays: dict[ArrayKey, Fragments] = {}
    for role, leaf, dtype, shape in listed:
        array: Array = np.frombuffer(data, np.dtype(dtype), math.prod(shape), offset).reshape(shape)
        arrays[ArrayKey(role, tuple(leaf))] = (array,)
        offset += _aligned(array.nbytes)
    return arrays


def _beginning(record: Record) -> tuple[bytes, bytes]:
    """Return the header and the JSON text of a record."""
    listed, arrays_bytes = [], 0
    for (role, leaf), pieces in record.arrays.items():
        listed.append((role, leaf, pieces[0].dtype.str, [sum(map(len, pieces)), *pieces[0].shape[1:]]))
        arrays_bytes += _aligned(sum(piece.nbytes for piece in pieces))
    text = json.dumps({"facts": record.facts, "arrays": listed}, default=_plain, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    header = _HEADER.pack(_MAGIC, FORMAT, record.commit, record.first, record.steps, len(text), arrays_bytes)
    return header + _CHECKSUM.pack(zlib.crc32(header)), text


def _bytes_of_arrays(record: Record) -> "Iterator[bytes | memoryview[int]]":
    for pieces in record.arrays.values():
        length = 0
        for piece in pieces:
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
            length += piece.nbytes
        yield bytes(-length % _ALIGNED)


def _aligned(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED


def _plain(number: Any) -> Any:
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{number!r} is not plain data")


def checksum_of(facts: Mapping[str, Any]) -> int:
    """Return the checksum of plain data, independent of the order of keys and of white space in a file."""
    return zlib.crc32(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())
