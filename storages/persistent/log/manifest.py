"""Manifest of a directory: a JSON file that describes the fields of its transitions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from storages.core.ring.layout import FieldKey, Layout, LeafLayout, text
from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.files import make_directory, refuse_link, refuse_links_in, unfinished
from storages.persistent.log import lock
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.json_file import name_damage, read_verified, write_verified
from storages.persistent.log.lock import Lock
from storages.persistent.log.records import FORMAT


@dataclass(frozen=True)
class Manifest(ABC):
    """Description of the transitions that a directory holds.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: number of stacked frames of each leaf that is a frame stack.
    """

    name: ClassVar[str]
    """File name of the manifest."""
    what: ClassVar[str]
    """Description of the directory, for people who read the file."""
    made_before: ClassVar[frozenset[str]] = frozenset()
    """Names of directory entries that may be created before the manifest."""

    layout: Layout
    stacked: dict[FieldKey, int]

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the manifest of a directory; return None if the directory is empty or does not exist.

        Raises:
            PersistenceError: the manifest has another format version, or the directory holds a storage of another
                kind or other files.
            DamageError: the manifest is damaged.
        """
        path = directory / cls.name
        if path.exists():
            with name_damage(path):
                return cls.from_facts(read_verified(path))
        if directory.exists() and not directory.is_dir():
            raise PersistenceError(f"{directory} is not a directory; name an existing or a new one")
        there = {entry.name for entry in directory.iterdir()} if directory.exists() else set()
        if cls.name in there:
            refuse_link(path)
            # Another process has written it since.
            return cls.read(directory)
        for kind in Manifest.__subclasses__():
            if kind.name in there:
                raise PersistenceError(
                    f"{directory} holds a storage of another kind, with {kind.name} in the place of {cls.name}; open "
                    f"it with the class that made it, read it with storages.datasets.open_dataset, or name another "
                    f"directory"
                )
        if others := sorted(there - cls.made_before - {lock.NAME, unfinished(path).name}):
            raise PersistenceError(
                f"{directory} holds something else ({', '.join(others[:3])}{', ...' if others[3:] else ''}) and no "
                f"{cls.name}; name an empty or a new directory. If a storage lost its {cls.name}, "
                f"storages.persistent.repair rebuilds it"
            )
        return None

    @classmethod
    def claim(cls, directory: Path, durable: bool) -> Lock:
        """Lock a directory that is empty or holds such a manifest, and create it if it does not exist.

        Raises:
            PersistenceError: the directory is in use, or holds other files.
            DamageError: the manifest is damaged.
            OSError: the directory cannot be written.
        """
        cls.read(directory)
        if directory.exists():
            refuse_links_in(directory)
        make_directory(directory, durable)
        return Lock(directory)

    def write(self, directory: Path, durable: bool) -> None:
        """Write the manifest to a directory atomically."""
        write_verified(directory / self.name, self.facts(), durable)

    def make_columns(self, ring: Ring, num_envs: int, directory: Path, size: int | None = None) -> None:
        """Allocate the columns of an empty ring, for ``size`` steps or, where None, for its own size.

        Raises:
            PersistenceError: the ring was made for other observations.
        """
        try:
            ring.prepare(self.layout, num_envs, size)
            ring.layout_from = f"{directory}, which an earlier process wrote"
        except ValueError as error:
            raise PersistenceError(f"{directory} holds incompatible observations: {error}") from None
        if ring.stacked != self.stacked:
            there, here = (
                {text(path): depth for path, depth in stacked.items()} for stacked in (self.stacked, ring.stacked)
            )
            raise PersistenceError(
                f"{directory} holds stacked frames {there}, this storage has {here}; make it for the same "
                f"environments, or name another directory"
            )

    def facts(self) -> dict[str, Any]:
        """Return the manifest as plain data."""
        return {
            "what": self.what,
            "format": FORMAT,
            "layout": [[list(path), leaf.dtype.str, list(leaf.shape)] for path, leaf in self.layout.items()],
            "stacked_frames": [[list(path), depth] for path, depth in self.stacked.items()],
        } | self._other_facts()

    @abstractmethod
    def _other_facts(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Invert :meth:`facts`.

        Raises:
            ValueError: the manifest is invalid; malformed facts may raise other errors, such as a TypeError.
        """


def empty_ring(layout: Layout, stacked: Mapping[FieldKey, int], size: int, owner: str, num_envs: int) -> Ring:
    """Make an empty ring of a layout, for ``size`` steps of ``num_envs`` environments."""
    names = {path[-1]: depth for path, depth in stacked.items()}
    whole = next((depth for path, depth in stacked.items() if len(path) == 1), 0)
    ring = Ring(size, owner, num_envs, allow_nonfinite=True, stacked_frames=whole or names)
    ring.prepare(layout, num_envs)
    return ring


def layout_of(facts: Mapping[str, Any]) -> Layout:
    """Parse the layout of a manifest.

    Raises:
        ValueError: the layout is invalid.
    """
    layout = {}
    for path, dtype, shape in facts["layout"]:
        leaf = LeafLayout(tuple(shape), np.dtype(dtype))
        # Names of fields become folder names.
        if not path or not all(isinstance(name, str) and name not in ("", ".", "..") for name in path):
            raise ValueError(f"{path!r} is no name of a field")
        if leaf.dtype.kind not in "?biufc" or not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"{path!r} is said to be {dtype!r}{shape!r}")
        layout[tuple(path)] = leaf
    return layout


def stacks_of(facts: Mapping[str, Any]) -> dict[FieldKey, int]:
    """Parse the numbers of stacked frames of a manifest, by leaf."""
    return {tuple(path): depth for path, depth in facts["stacked_frames"]}


def count_of(facts: Mapping[str, Any], name: str) -> int:
    """Parse a positive int of a manifest.

    Raises:
        ValueError: it is none.
    """
    count = facts[name]
    if type(count) is not int or count < 1:
        raise ValueError(f"{name} is {count!r}")
    return count


_AnyManifest = TypeVar("_AnyManifest", bound=Manifest)


def manifest_of(folder: Path, kind: type[_AnyManifest], log: CommitLog) -> tuple[_AnyManifest, list[str]]:
    """Return the manifest of a directory, and a description of its damage if it was rebuilt from the log.

    Raises:
        PersistenceError: there is no manifest, neither in its file nor in the log.
    """
    try:
        manifest = kind.read(folder)
        if manifest is not None:
            return manifest, []
        error = PersistenceError(f"{folder} holds no storage")
    except PersistenceError as refused:
        error = refused
    # Every log file begins with a copy of the manifest.
    for one in log.files.walk():
        if not isinstance(one, str) and "manifest" in one[0].record.facts:
            return kind.from_facts(one[0].record.facts["manifest"]), [str(error).partition(";")[0]]
    if isinstance(error, DamageError):
        raise PersistenceError(f"{error}, but no log file is intact to rebuild it from; nothing was changed") from None
    raise error
