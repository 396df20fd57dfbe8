"""HDF5 files, of which nothing but numbers is read."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.budget import MemoryBudget
from storages.datasets.dataset import needs_package
from storages.datasets.pictures import from_jpeg
from storages.errors import DatasetError
from storages.transition import Array


def opened(path: Path) -> Any:
    """A file to read.

    Raises:
        DatasetError: it is not there, or no HDF5 file.
    """
    h5py = _h5py(path)
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read as an HDF5 file: {error}") from error


def made(path: Path) -> Any:
    """A new file to write, which keeps the order that things come in."""
    return _h5py(path).File(path, "x", track_order=True)


def found(group: Any, names: Sequence[str], where: str) -> Any:
    """What stands at a path in a group.

    Raises:
        DatasetError: there is nothing.
    """
    node = group
    for name in names:
        if not hasattr(node, "keys") or (node := part(node, name, where)) is None:
            raise DatasetError(f"{where} lacks {'/'.join(names)}; it has {', '.join(group)}")
    return node


def part(group: Any, name: str, where: str) -> Any:
    """What a group has under a name; None where that is nothing.

    Raises:
        DatasetError: it is a link, or its values are in another file.
    """
    h5py = _h5py(where)
    # Asking for the thing itself would open the file that a link leads to.
    link = group.get(name, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise DatasetError(
            f"{where}: {name} is a link to {getattr(link, 'filename', '')}:{getattr(link, 'path', '')}, which is not "
            f"followed; copy what it leads to into the file (h5copy)"
        )
    node = group[name]
    if isinstance(node, h5py.Dataset) and (node.is_virtual or node.external):
        raise DatasetError(
            f"{where}: the values of {name} are in other files, which are not read; copy them into the file (h5repack)"
        )
    return node


def nbytes_of(node: Any) -> int:
    """Bytes of memory that reading a data set takes, or a chunk of it."""
    return int(max(math.prod(node.shape), math.prod(node.chunks or ())) * node.dtype.itemsize)


def is_numbers(node: Any) -> bool:
    """Whether it is an array of numbers or truth values."""
    return hasattr(node, "dtype") and node.dtype.kind in "biuf"


def numbers(node: Any, where: str) -> Any:
    """An HDF5 data set, to be indexed, if it is one of numbers.

    Raises:
        DatasetError: it is something else.
    """
    if not is_numbers(node):
        what = getattr(node, "dtype", "a group")
        raise DatasetError(f"{where}: {node.name} is {what}; nothing but numbers is read, because objects can run code")
    return node


def pictures(node: Any, shape: tuple[int, ...], budget: MemoryBudget, where: str) -> Array:
    """(L, height, width, ...) uint8: what stands there as the bytes of JPEGs, one a row."""
    h5py = _h5py(where)
    if getattr(node, "dtype", None) is None or np.uint8 not in (node.dtype, h5py.check_vlen_dtype(node.dtype)):
        raise DatasetError(f"{where}: {node.name} is to be bytes of pictures, and is something else")
    budget.take(nbytes_of(node), str(node.name))
    return from_jpeg([bytes(row) for row in node[()]], shape, budget, where)


def _h5py(what: object) -> Any:
    try:
        import h5py
    except ModuleNotFoundError:
        raise needs_package("h5py", what) from None
    return h5py
