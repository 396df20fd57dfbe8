"""HDF5 files, of which nothing but numbers is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storages.persistent.datasets.dataset import needs_package
from storages.persistent.datasets.pictures import from_jpeg
from storages.persistent.errors import DatasetError
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
        if not hasattr(node, "keys") or name not in node:
            raise DatasetError(f"{where} lacks {'/'.join(names)}; it has {', '.join(group)}")
        node = node[name]
    return node


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


def pictures(node: Any, where: str) -> Array:
    """(L, height, width, ...) uint8: what stands there as the bytes of JPEGs, one a row."""
    h5py = _h5py(where)
    if getattr(node, "dtype", None) is None or np.uint8 not in (node.dtype, h5py.check_vlen_dtype(node.dtype)):
        raise DatasetError(f"{where}: {node.name} is to be bytes of pictures, and is something else")
    return from_jpeg((bytes(row) for row in node[()]), where)


def _h5py(what: object) -> Any:
    try:
        import h5py
    except ModuleNotFoundError:
        raise needs_package("h5py", what) from None
    return h5py
