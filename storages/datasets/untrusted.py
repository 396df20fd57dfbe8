"""Safe reading of untrusted files, which may be damaged or malicious.

Only numeric arrays are read from HDF5 files, and no link to another file is followed.
"""

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from storages.errors import DatasetError, PersistenceError

MOST_EXPANSION = 200
"""Largest compression ratio of a file that is accepted."""
_ALWAYS_BYTES = 64 << 20
_BLOCK_BYTES = 512
BROKEN = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
    *(lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
)
"""Exceptions that libraries raise on damaged files."""


class MemoryBudget:
    """Limit of the bytes of arrays that are read from a file, or from the files of a folder.

    Args:
        path: the file or the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._on_disk = sum(map(_bytes_on_disk, [path] if path.is_file() else path.rglob("*")))
        self._left = max(_ALWAYS_BYTES, MOST_EXPANSION * self._on_disk)

    def take(self, nbytes: int, name: str) -> None:
        """Subtract the bytes of an array before it is read.

        Raises:
            DatasetError: the array is larger than the file justifies.
        """
        self._left -= nbytes
        if nbytes < 0 or self._left < 0:
            raise DatasetError(
                f"{self._path}: {name} claims {nbytes:,} bytes, and the file has {self._on_disk:,}; if that is right, "
                f"write the data set again without compression"
            )


def _bytes_on_disk(path: Path) -> int:
    if not path.is_file():
        return 0
    status = path.stat()
    # A sparse file occupies less than its length; not every file system reports blocks.
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES or status.st_size)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Convert the exceptions of libraries to an error that names the file.

    Raises:
        DatasetError: in place of any of :data:`BROKEN`.
    """
    try:
        yield
    except PersistenceError:
        raise
    except BROKEN as error:
        raise DatasetError(f"{path} is damaged, or of another format than its name says: {error!r}") from error


@contextmanager
def package_needed(package: str, user: object) -> Iterator[None]:
    """Convert the failed import of a package to an error that says how to install it.

    Raises:
        DatasetError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise DatasetError(f"{user} needs the package {package}; pip install {package}") from None


# HDF5


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading.

    Raises:
        DatasetError: it does not exist, or is no HDF5 file.
    """
    h5py = _h5py(path)
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read as an HDF5 file: {error}") from error


def create_hdf5(path: Path) -> Any:
    """Create an HDF5 file that keeps the order of insertion."""
    return _h5py(path).File(path, "x", track_order=True)


def find_node(group: Any, names: Sequence[str], where: str) -> Any:
    """Return the node at a path below a group.

    Raises:
        DatasetError: there is none.
    """
    node = group
    for name in names:
        if not hasattr(node, "keys") or (node := child_node(node, name, where)) is None:
            raise DatasetError(f"{where} lacks {'/'.join(names)}; it has {', '.join(group)}")
    return node


def child_node(group: Any, name: str, where: str) -> Any:
    """Return the node of a name in a group; None if there is none.

    Raises:
        DatasetError: it is a soft or external link, or its values are in another file.
    """
    h5py = _h5py(where)
    # `group[name]` would open the target file of an external link.
    link = group.get(name, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise DatasetError(
            f"{where}: {name} is a link to {getattr(link, 'filename', '')}:{getattr(link, 'path', '')}, which is not "
            f"followed; copy the target into the file (h5copy)"
        )
    node = group[name]
    if isinstance(node, h5py.Dataset) and (node.is_virtual or node.external):
        raise DatasetError(
            f"{where}: the values of {name} are in other files, which are not read; copy them into the file (h5repack)"
        )
    return node


def nbytes_of(node: Any) -> int:
    """Return the bytes of memory for reading a node: its array, or one chunk if that is larger."""
    return int(max(math.prod(node.shape), math.prod(node.chunks or ())) * node.dtype.itemsize)


def is_numeric(node: Any) -> bool:
    """Return whether a node is an array of numbers or booleans."""
    return hasattr(node, "dtype") and node.dtype.kind in "biuf"


def is_bytes(node: Any) -> bool:
    """Return whether the rows of a node are bytes, of fixed or variable length."""
    dtype = getattr(node, "dtype", None)
    return dtype is not None and np.uint8 in (dtype, _h5py(node).check_vlen_dtype(dtype))


def numbers(node: Any, where: str) -> Any:
    """Return the node itself, if it is an array of numbers.

    Raises:
        DatasetError: it is not one.
    """
    if not is_numeric(node):
        kind = getattr(node, "dtype", "a group")
        raise DatasetError(f"{where}: {node.name} is {kind}; only numbers are read, because objects can run code")
    return node


def _h5py(user: object) -> Any:
    with package_needed("h5py", user):
        import h5py
    return h5py
