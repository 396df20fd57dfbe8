"""Limits and errors for files from others, which may be damaged or crafted to do harm."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storages.errors import DatasetError, PersistenceError

MOST_EXPANSION = 200
"""How many bytes of arrays a byte on disk may stand for."""
_ALWAYS_BYTES = 64 << 20
_BLOCK_BYTES = 512
BROKEN = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
    *(lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
)
"""Exceptions that libraries raise on damaged files."""


class MemoryBudget:
    """Bytes of arrays that may be read from a file, or from the files of a folder.

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
    """Turn the exceptions of libraries into an error that names the file.

    Raises:
        DatasetError: in place of any of :data:`BROKEN`.
    """
    try:
        yield
    except PersistenceError:
        raise
    except BROKEN as error:
        raise DatasetError(f"{path} is damaged, or of another format than its name says: {error!r}") from error


def needs_package(package: str, user: object) -> DatasetError:
    """An error that names a missing package and how to install it."""
    return DatasetError(f"{user} needs the package {package}; pip install {package}")
