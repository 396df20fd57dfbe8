"""What every data set is, however it lies on disk: episodes that can be gone through, and what it says of itself."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from storages.episode import Episode
from storages.errors import DatasetError, PersistenceError

Space: TypeAlias = Mapping[str, Any]
"""A space of gymnasium as plain data: ``{"type": "Discrete", "n": 2, "start": 0}``, as Minari writes it."""


@dataclass(frozen=True)
class About:
    """What a data set says of itself; plain data.

    Args:
        dataset_id: its name, as Minari has it: ``pendulum/expert-v0``.
        observation_space: what is observed; None where nobody said.
        action_space: what is done; None where nobody said.
        env_spec: JSON of gymnasium's ``EnvSpec`` of the environment that it was recorded in. No environment is ever
            made of it here, because that would import what it names.
        algorithm_name: who acted.
        author: who recorded it.
        author_email: where to ask.
        description: in words.
        combined_datasets: ids of the data sets that it was merged of.
        further: whatever else Minari says, under its names.
    """

    dataset_id: str | None = None
    observation_space: Space | None = None
    action_space: Space | None = None
    env_spec: str | None = None
    algorithm_name: str | None = None
    author: tuple[str, ...] = ()
    author_email: tuple[str, ...] = ()
    description: str | None = None
    combined_datasets: tuple[str, ...] = ()
    further: Mapping[str, Any] = field(default_factory=dict)


class Dataset(ABC):
    """Episodes on disk. Iterating reads them one by one, from the first each time.

    Args:
        path: where it is.
        about: what it says of itself.
    """

    format: ClassVar[str]
    """As :func:`storages.datasets.write_dataset` calls it."""

    def __init__(self, path: Path, about: About) -> None:
        self.path = path
        self.about = about

    def __iter__(self) -> Iterator[Episode]:
        """Read the episodes.

        Raises:
            DatasetError: what is there is not what the format says; the text names the file and the place.
        """
        with damage_named(self.path):
            yield from self._episodes()

    @abstractmethod
    def _episodes(self) -> Iterator[Episode]: ...

    @abstractmethod
    def __len__(self) -> int:
        """Episodes."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Transitions of all episodes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} episodes, {self.steps} steps)"


BROKEN = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
    *(lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error),
)
"""What libraries raise on a file that is not what it seems."""


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Say of which file it is that something cannot be understood.

    Raises:
        DatasetError: instead of what they raise.
    """
    try:
        yield
    except PersistenceError:
        raise
    except BROKEN as error:
        raise DatasetError(f"{path} is damaged, or not what it seems: {error!r}") from error


def needs_package(package: str, what: object) -> DatasetError:
    """That a package is missing, and how to get it."""
    return DatasetError(f"{what} needs the package {package}; pip install {package}")
