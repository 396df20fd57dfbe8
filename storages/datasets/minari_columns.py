"""What a Minari data set keeps of an episode, whatever kind of file it is in."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from storages.datasets.spaces import Leaf
from storages.transition import Array

Key: TypeAlias = tuple[str | int, ...]
"""("observations", *path), ("actions",), ("rewards",), ("terminations",), ("truncations",), ("infos", name)."""
Columns: TypeAlias = dict[Key, Array]
"""Arrays of an episode of L steps: (L + 1, ...) of observations and infos, else (L, ...)."""


class ColumnsReader(ABC):
    """Reads a kind of file."""

    @abstractmethod
    def numbers(self) -> list[int]:
        """Which episodes there are."""

    @abstractmethod
    def read(self, number: int, leaves: Mapping[Key, Leaf | None], jpeg: bool) -> tuple[Columns, dict[str, Any]]:
        """One of them.

        Args:
            number: which.
            leaves: what to read, and the part of a space that it belongs to; infos are read if they are numbers.
            jpeg: whether pictures are JPEG.

        Returns:
            What was asked for, and facts about the episode.

        Raises:
            DatasetError: something is missing, or not made of numbers.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files."""


class ColumnsWriter(ABC):
    """Writes a kind of file.

    Args:
        folder: where.
    """

    layout: ClassVar[str]
    """As Minari calls it."""

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def write(self, number: int, columns: Columns, facts: Mapping[str, Any]) -> None:
        """One more episode."""

    @abstractmethod
    def close(self) -> None:
        """Finish files."""
