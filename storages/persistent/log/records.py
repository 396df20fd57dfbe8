"""Blocks: what a commit writes in one go, and what is believed only as a whole.

A block is a header of fixed length with its own checksum, a line of JSON that says which arrays follow, these arrays,
each on a multiple of 8 bytes, and a checksum of all but the header. What a process that was killed leaves behind is a
block that the file ends before; any other that is not whole is damaged. After one, the next is found by its magic.
"""

import errno
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
from storages.transition import Array

FORMAT = 2
"""The layout of blocks and manifests that this code writes, and the only one that it reads."""

_MAGIC = b"\x89journal"
_HEADER = struct.Struct("<8sI4xQQQQQ")
"""Magic, format, number of the commit, first step, number after the last, bytes of JSON, bytes of arrays."""
_CHECKSUM = struct.Struct("<I4x")
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_ALIGNED = 8
IN_ONE_PIECE_BYTES = 1 << 20
"""Of arrays that are less, a block is copied and written at once."""


@dataclass(frozen=True)
class Block:
    """A commit, or what belongs to one.

    Args:
        commit: its number, from 1.
        first: number of the first step that it holds.
        steps: number after the last.
        facts: plain data.
        arrays: by name.
    """

    commit: int
    first: int
    steps: int
    facts: dict[str, Any]
    arrays: dict[ArrayKey, Fragments]

    @property
    def small(self) -> bool:
        """Whether it costs next to nothing to copy it."""
        return sum(piece.nbytes for pieces in self.arrays.values() for piece in pieces) <= IN_ONE_PIECE_BYTES


class Image(NamedTuple):
    """A block as it is written."""

    commit: int
    data: bytes
    checksum: int


class Found(NamedTuple):
    """A block in a file."""

    block: Block
    checksum: int
    end: int
    """Number of the byte after it."""


class Flaw(NamedTuple):
    """Bytes of a file that are no block."""

    begin: int
    end: int
    cut: bool
    """Whether the file ends before they would: what a process that was killed leaves behind."""
    first: int | None
    """Number of the first step that they held, where their header says so."""
    steps: int | None
    """Number after the last."""


def image_of(block: Block) -> Image:
    """A block in memory, a copy of all that it holds."""
    header, text = _beginning(block)
    content = b"".join([text, *_bytes_of_arrays(block)])
    checksum = zlib.crc32(content)
    return Image(block.commit, b"".join([header, content, _CHECKSUM.pack(checksum)]), checksum)


def write(file: int, block: Block | Image) -> tuple[int, int]:
    """Write a block at a file's end; returns how many bytes it has, and its checksum.

    Raises:
        OSError: not all of it could be written.
    """
    if isinstance(block, Block) and block.small:
        block = image_of(block)
    if isinstance(block, Image):
        _write_all(file, memoryview(block.data))
        return len(block.data), block.checksum
    header, text = _beginning(block)
    _write_all(file, memoryview(header + text))
    length, checksum = len(header) + len(text), zlib.crc32(text)
    for data in _bytes_of_arrays(block):
        checksum = zlib.crc32(data, checksum)
        length += len(data)
        _write_all(file, memoryview(data))
    _write_all(file, memoryview(_CHECKSUM.pack(checksum)))
    return length + _CHECKSUM.size, checksum


def read(path: Path, most_bytes: int | None = None) -> Iterator[Found | Flaw]:
    """What a file holds, in its order.

    Args:
        path: the file.
        most_bytes: how much of it to read, where another process may be writing to it; all of it where None.
    """
    data: bytes | mmap.mmap
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        if most_bytes is not None:
            # Memory that is mapped is gone where the other process makes the file shorter.
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
            # A power cut may leave a file with a length that was never filled.
            cut = length - offset < _HEADER_BYTES or (end == length and not data[offset:].strip(b"\0"))
            yield Flaw(offset, end, cut, None, None)
            offset = end
            continue
        _, _, commit, first, steps, text_bytes, arrays_bytes = header
        begin, end = offset + _HEADER_BYTES, offset + _HEADER_BYTES + text_bytes + arrays_bytes + _CHECKSUM.size
        if end > length:
            yield Flaw(offset, length, True, first, steps)
            return
        with memoryview(data) as view, view[begin : end - _CHECKSUM.size] as content:
            checksum = zlib.crc32(content)
        if _CHECKSUM.pack(checksum) == data[end - _CHECKSUM.size : end]:
            try:
                said = json.loads(data[begin : begin + text_bytes])
                facts = dict(**said["facts"])
                block = Block(commit, first, steps, facts, _arrays(data, begin + text_bytes, said["arrays"]))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError, SyntaxError):
                # A checksum is no signature.
                yield Flaw(offset, end, False, first, steps)
            else:
                yield Found(block, checksum, end)
        else:
            # As above, where a part of the block got there.
            cut = end == length and not data[end - _CHECKSUM.size : end].strip(b"\0")
            yield Flaw(offset, end, cut, first, steps)
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


def _beginning(block: Block) -> tuple[bytes, bytes]:
    """Header and text."""
    listed, arrays_bytes = [], 0
    for (role, leaf), pieces in block.arrays.items():
        listed.append((role, leaf, pieces[0].dtype.str, [sum(map(len, pieces)), *pieces[0].shape[1:]]))
        arrays_bytes += _aligned(sum(piece.nbytes for piece in pieces))
    text = json.dumps({"facts": block.facts, "arrays": listed}, default=_plain, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    header = _HEADER.pack(_MAGIC, FORMAT, block.commit, block.first, block.steps, len(text), arrays_bytes)
    return header + _CHECKSUM.pack(zlib.crc32(header)), text


def _bytes_of_arrays(block: Block) -> "Iterator[bytes | memoryview[int]]":
    for pieces in block.arrays.values():
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


def _write_all(file: int, data: "memoryview[int]") -> None:
    while len(data):
        written = os.write(file, data)
        if not written:
            raise OSError(errno.EIO, "nothing more is written")
        data = data[written:]


def checksum_of(facts: Mapping[str, Any]) -> int:
    """Of plain data, however it is laid out in a file."""
    return zlib.crc32(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode())
