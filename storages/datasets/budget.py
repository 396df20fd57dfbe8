"""How much memory a file may ask for: one that was crafted speaks of far more than it holds."""

from pathlib import Path

from storages.errors import DatasetError

MOST_EXPANSION = 200
"""How many bytes of arrays a byte on disk may stand for."""
_ALWAYS_BYTES = 64 << 20
_BLOCK_BYTES = 512


class MemoryBudget:
    """The bytes of arrays that a file, or the files of a folder, may be read to.

    Args:
        path: the file or the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._on_disk = sum(map(_bytes_on_disk, [path] if path.is_file() else path.rglob("*")))
        self._left = max(_ALWAYS_BYTES, MOST_EXPANSION * self._on_disk)

    def take(self, nbytes: int, what: str) -> None:
        """Note that an array is going to be read.

        Raises:
            DatasetError: it is larger than the file makes likely.
        """
        self._left -= nbytes
        if nbytes < 0 or self._left < 0:
            raise DatasetError(
                f"{self._path}: {what} is said to have {nbytes:,} bytes, and the file has {self._on_disk:,}; if that "
                f"is right, write the data set anew without compression"
            )


def _bytes_on_disk(path: Path) -> int:
    if not path.is_file():
        return 0
    said = path.stat()
    # Of a file with holes, less than its length; not every file system tells.
    return min(said.st_size, said.st_blocks * _BLOCK_BYTES or said.st_size)
