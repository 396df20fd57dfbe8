"""Columns on disk: zarr (v3) arrays, whose chunks are files that are written once.

Chunks are not written by zarr itself, because it leaves out chunks of zeros, reads missing chunks as zeros, and does
not report damage. zarr can read the arrays that are written here.

Numbers of several bytes are compressed by lz4 with byte shuffling, which is as good as zstd there and much faster;
frames by zstd without shuffling, which takes less space.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import google_crc32c
import numcodecs
import numpy as np

from storages.core.ring.layout import FieldKey, LeafLayout
from storages.errors import DamageError
from storages.transition import Array

METADATA = "zarr.json"
_CHECKSUM_BYTES = 4
_HEADER_BYTES = 16
"""Length of a Blosc header, and the most that compression may add to incompressible data."""
_NBYTES = slice(4, 8)
"""Position of the decompressed size in a Blosc header."""
_CHUNK_BYTES = 512 << 10


@dataclass(frozen=True)
class Chunks:
    """A column that is stored in chunks of equally many rows.

    Args:
        leaf: the field of the column.
        layout: shape and dtype of a row.
        rows: rows of a chunk.
    """

    leaf: FieldKey
    layout: LeafLayout
    rows: int

    @classmethod
    def of(cls, leaf: FieldKey, layout: LeafLayout, most_rows: int) -> "Chunks":
        """Choose the rows of a chunk: ``most_rows``, halved until a chunk has at most 512 KiB."""
        rows = most_rows
        while rows > 1 and rows * layout.count * layout.dtype.itemsize > _CHUNK_BYTES:
            rows //= 2
        return cls(leaf, layout, rows)

    def directory(self, group: Path) -> Path:
        """Return the folder of the chunks."""
        return group.joinpath(*map(_file_name, self.leaf))

    def path(self, group: Path, number: int) -> Path:
        """Return the path of a chunk."""
        return self.directory(group) / ".".join(["c", str(number), *("0" for _ in self.layout.shape)])

    def numbers(self, group: Path) -> Iterator[int]:
        """Iterate over the numbers of the chunks that exist."""
        numbers = (path.name.split(".")[1] for path in self.directory(group).glob("c.*"))
        return (int(number) for number in numbers if number.isdecimal())

    def encode(self, rows: Array) -> tuple[bytes, int]:
        """Return the bytes of a chunk with these rows, padded with zeros, and its checksum (CRC32C)."""
        if len(rows) < self.rows:
            whole = np.zeros((self.rows, *self.layout.shape), self.layout.dtype)
            whole[: len(rows)] = rows
        else:
            whole = np.ascontiguousarray(rows)
        of_bytes = self.layout.dtype.itemsize == 1
        codec = (
            numcodecs.Blosc("zstd", 1, numcodecs.Blosc.NOSHUFFLE)
            if of_bytes
            else numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
        )
        data: bytes = codec.encode(whole.view(np.uint8) if of_bytes else whole)
        checksum = google_crc32c.value(data)
        return data + checksum.to_bytes(_CHECKSUM_BYTES, "little"), checksum

    def read(self, group: Path, number: int, checksum: int, target: Array) -> None:
        """Read the first rows of a chunk.

        Args:
            group: the folder of all columns.
            number: number of the chunk.
            checksum: the checksum that :meth:`encode` returned.
            target: (rows, ...), output; no more rows than a chunk has.

        Raises:
            DamageError: the chunk is damaged or missing.
        """
        path, nbytes = self.path(group, number), self.rows * self.layout.count * self.layout.dtype.itemsize
        most = nbytes + _HEADER_BYTES + _CHECKSUM_BYTES
        try:
            with path.open("rb") as file:
                # read() allocates the requested size first, so a crafted file must not choose it.
                data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
        except FileNotFoundError:
            raise DamageError(f"{path} is missing") from None
        content, said = memoryview(data)[:-_CHECKSUM_BYTES], int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
        is_whole = _HEADER_BYTES + _CHECKSUM_BYTES <= len(data) <= most and said == checksum
        if not is_whole or google_crc32c.value(bytes(content)) != checksum:
            raise DamageError(f"{path} is damaged")
        # A smaller chunk would leave the rest of the target uninitialised.
        if int.from_bytes(content[_NBYTES], "little") != nbytes:
            raise DamageError(f"{path} holds a wrong number of rows for a chunk of its array")
        try:
            if len(target) == self.rows and target.flags.c_contiguous:
                numcodecs.blosc.decompress(content, target.view(np.uint8) if target.dtype == np.bool_ else target)
            else:
                whole = np.empty((self.rows, *self.layout.shape), self.layout.dtype)
                numcodecs.blosc.decompress(content, whole.view(np.uint8))
                target[...] = whole[: len(target)]
        except (RuntimeError, ValueError) as error:
            raise DamageError(f"{path} cannot be decompressed: {error}") from None


def metadata(columns: list[Chunks]) -> dict[str, dict[str, Any]]:
    """Return the zarr metadata of empty columns, by file names within the group."""
    # Importing zarr takes as long as importing all of storages, and few storages need it.
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    store: dict[str, Any] = {}
    root = zarr.open_group(zarr.storage.MemoryStore(store), mode="w", zarr_format=3)
    for column in columns:
        group = root
        for part in column.leaf[:-1]:
            group = group.require_group(_file_name(part))
        itemsize = column.layout.dtype.itemsize
        compressor = (
            BloscCodec(typesize=1, cname="zstd", clevel=1, shuffle="noshuffle")
            if itemsize == 1
            else BloscCodec(typesize=itemsize, cname="lz4", clevel=5, shuffle="shuffle")
        )
        group.create_array(
            _file_name(column.leaf[-1]),
            shape=(0, *column.layout.shape),
            chunks=(column.rows, *(max(1, length) for length in column.layout.shape)),
            dtype=column.layout.dtype,
            compressors=[compressor, Crc32cCodec()],
            chunk_key_encoding={"name": "default", "separator": "."},
        )
    return {name: json.loads(content.to_bytes()) for name, content in store.items()}


def with_rows(said: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return zarr metadata with another number of rows."""
    return dict(said) | ({"shape": [rows, *said["shape"][1:]]} if "shape" in said else {})


def _file_name(name: str) -> str:
    """Return a name that is safe as a file name, and differs from zarr's metadata file."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") and quoted != METADATA else f"%{quoted}"
