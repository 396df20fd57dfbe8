"""Ways in which a file of a directory can differ from what was written last."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WAYS = ("flip", "truncate", "delete", "swap", "stale")


@dataclass(frozen=True)
class Damage:
    """A damage of a directory.

    Args:
        way: one of :data:`WAYS`.
        files: the changed files, relative to the directory.
    """

    way: str
    files: tuple[Path, ...]


def files_in(directory: Path) -> list[Path]:
    """All files but the lock, which holds no data; relative to the directory."""
    return sorted(
        path.relative_to(directory) for path in directory.rglob("*") if path.is_file() and path.name != "lock"
    )


def damages(directory: Path, intact: Path, older: Path, count: int, random: np.random.Generator) -> Iterator[Damage]:
    """Damage a copy of a directory, each way and each file in turn; each damage gets a new copy.

    Args:
        directory: where the copy is.
        intact: the directory that is copied.
        older: the same directory, as it was before it was opened for the last time.
        count: number of damages.
    """
    found = files_in(intact)
    done, turn, files = 0, 0, [found[place] for place in random.permutation(len(found))]
    while done < count:
        way = WAYS[turn % len(WAYS)]
        path = files[turn // len(WAYS) % len(files)]
        turn += 1
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(intact, directory)
        changed = _harm(way, path, directory, older, files, random)
        if changed:
            done += 1
            yield Damage(way, changed)


def _harm(
    way: str, path: Path, directory: Path, older: Path, files: list[Path], random: np.random.Generator
) -> tuple[Path, ...]:
    """Damage a file; return the changed files, or none if this way is not possible."""
    there = directory / path
    data = there.read_bytes()
    match way:
        case "flip" if data:
            flipped = bytearray(data)
            flipped[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            there.write_bytes(flipped)
        case "truncate" if data:
            os.truncate(there, int(random.integers(len(data))))
        case "delete":
            there.unlink()
        case "swap":
            other = files[int(random.integers(len(files)))]
            exchanged = (directory / other).read_bytes()
            if exchanged == data:
                return ()
            there.write_bytes(exchanged)
            (directory / other).write_bytes(data)
            return path, other
        case "stale" if (older / path).exists():
            there.write_bytes((older / path).read_bytes())
    return () if there.exists() and there.read_bytes() == data else (path,)


def flip(path: Path, mask: int, part: int = 2) -> None:
    """Flip the bits of ``mask`` in one byte of a file: that in its middle, or at one of ``part`` equal parts."""
    data = bytearray(path.read_bytes())
    data[len(data) // part] ^= mask
    path.write_bytes(data)
