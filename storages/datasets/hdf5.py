"""Safe reading of HDF5 files: numbers alone, and no link to another file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.untrusted import needs_package
from storages.errors import DatasetError


def open_file(path: Path) -> Any:
    """Open a file for reading.

    Raises:
        DatasetError: it does not exist, or is no HDF5 file.
    """
    h5py = _h5py(path)
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read as an HDF5 file: {error}") from error


def create(path: Path) -> Any:
    """Create a file, which keeps the order of insertion."""
    return _h5py(path).File(path, "x", track_order=True)


def find(group: Any, names: Sequence[str], where: str) -> Any:
    """The node at a path below a group.

    Raises:
        DatasetError: there is none.
    """
    node = group
    for name in names:
        if not hasattr(node, "keys") or (node := child(node, name, where)) is None:
            raise DatasetError(f"{where} lacks {'/'.join(names)}; it has {', '.join(group)}")
    return node


def child(group: Any, name: str, where: str) -> Any:
    """The node of a name in a group; None if there is none.

    Raises:
        DatasetError: it is a link, or its values are in another file.
    """
    h5py = _h5py(where)
    # `group[name]` would open the file that a link leads to.
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
    """Bytes of memory that reading a node takes, or a chunk of it."""
    return int(max(math.prod(node.shape), math.prod(node.chunks or ())) * node.dtype.itemsize)


def is_numeric(node: Any) -> bool:
    """Whether a node is an array of numbers or truth values."""
    return hasattr(node, "dtype") and node.dtype.kind in "biuf"


def is_bytes(node: Any) -> bool:
    """Whether the rows of a node are bytes, of equal length or not."""
    dtype = getattr(node, "dtype", None)
    return dtype is not None and np.uint8 in (dtype, _h5py(node).check_vlen_dtype(dtype))


def numbers(node: Any, where: str) -> Any:
    """The node itself, if it is an array of numbers.

    Raises:
        DatasetError: it is not.
    """
    if not is_numeric(node):
        kind = getattr(node, "dtype", "a group")
        raise DatasetError(f"{where}: {node.name} is {kind}; nothing but numbers is read, because objects can run code")
    return node


def _h5py(user: object) -> Any:
    try:
        import h5py
    except ModuleNotFoundError:
        raise needs_package("h5py", user) from None
    return h5py
