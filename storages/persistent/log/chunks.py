"""How a column lies on disk: as a zarr (v3) array, whose chunks are files that are written once and then read.

zarr itself does not write them, because it leaves out chunks of zeros, fills in missing ones, and says nothing of what
is whole. It can read them: what lies there is an array like any other.

Of several million rows of CartPole, of 17 floats and of frames of Pong, lz4 with shuffled bytes made numbers of several
bytes as small as zstd did and was ten times as quick either way; zstd, without shuffling, made frames half as large.
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
"""Of what Blosc compresses, and by how much it may be longer than that."""
_NBYTES = slice(4, 8)
"""Where the header says how many bytes it is decompressed."""
_CHUNK_BYTES = 512 << 10


@dataclass(frozen=True)
class Chunks:
    """A column in chunks of as many rows.

    Args:
        leaf: which.
        layout: shape and dtype of a row.
        rows: of a chunk.
    """

    leaf: FieldKey
    layout: LeafLayout
    rows: int

    @classmethod
    def of(cls, leaf: FieldKey, layout: LeafLayout, most_rows: int) -> "Chunks":
        """With as many rows, at most, as are worth a file; a power of two."""
        rows = most_rows
        while rows > 1 and rows * layout.count * layout.dtype.itemsize > _CHUNK_BYTES:
            rows //= 2
        return cls(leaf, layout, rows)

    def directory(self, group: Path) -> Path:
        """Where they are."""
        return group.joinpath(*map(_file_name, self.leaf))

    def path(self, group: Path, number: int) -> Path:
        """Where one is."""
        return self.directory(group) / ".".join(["c", str(number), *("0" for _ in self.layout.shape)])

    def numbers(self, group: Path) -> Iterator[int]:
        """Numbers of those that are there."""
        numbers = (path.name.split(".")[1] for path in self.directory(group).glob("c.*"))
        return (int(number) for number in numbers if number.isdecimal())

    def encode(self, rows: Array) -> tuple[bytes, int]:
        """A chunk that begins with these rows, with zeros after them, and its checksum."""
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
            group: where all columns are.
            number: of the chunk.
            checksum: that it was written with.
            target: (rows, ...), written; no more rows than a chunk has.

        Raises:
            DamageError: it is not what was written, or not there.
        """
        path, nbytes = self.path(group, number), self.rows * self.layout.count * self.layout.dtype.itemsize
        most = nbytes + _HEADER_BYTES + _CHECKSUM_BYTES
        try:
            with path.open("rb") as file:
                # Room for as much as is asked for is taken before anything is read.
                data = file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
        except FileNotFoundError:
            raise DamageError(f"{path} is missing") from None
        content, said = memoryview(data)[:-_CHECKSUM_BYTES], int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
        is_whole = _HEADER_BYTES + _CHECKSUM_BYTES <= len(data) <= most and said == checksum
        if not is_whole or google_crc32c.value(bytes(content)) != checksum:
            raise DamageError(f"{path} is damaged")
        # Less would leave in the target what was there before.
        if int.from_bytes(content[_NBYTES], "little") != nbytes:
            raise DamageError(f"{path} holds another number of rows than its array has in a chunk")
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
    """Return the zarr metadata of empty columns, by names of files within the group."""
    # Importing it takes as long as importing all of storages, and most storages are not of episodes on disk.
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
    """Metadata of so many rows."""
    return dict(said) | ({"shape": [rows, *said["shape"][1:]]} if "shape" in said else {})


def _file_name(name: str) -> str:
    """A name that is safe in any directory, and cannot be one of zarr's."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") and quoted != METADATA else f"%{quoted}"
