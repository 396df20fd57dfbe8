"""Damage of the files of storages."""

from pathlib import Path


def flip(path: Path, mask: int, part: int = 2) -> None:
    """Flip the bits of ``mask`` in one byte of a file: that in its middle, or at one of ``part`` equal parts."""
    data = bytearray(path.read_bytes())
    data[len(data) // part] ^= mask
    path.write_bytes(data)
