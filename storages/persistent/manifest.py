"""What a directory holds, in a file that people can read: ``storage.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from storages.core.fields import Layout, text
from storages.core.fields import Path as Leaf
from storages.core.ring import Ring
from storages.persistent import lock
from storages.persistent.blocks import FORMAT
from storages.persistent.errors import PersistenceError
from storages.persistent.facts import checked_facts, count_of, damage_told, layout_of, write_facts
from storages.persistent.files import unfinished

NAME = "storage.json"
_WHAT = "a replay storage, kept by pytorchrl's storages"


@dataclass(frozen=True)
class Manifest:
    """What all blocks of a directory have in common.

    Args:
        size: capacity along the time axis.
        num_envs: environments in a step.
        layout: shapes and dtypes of a transition's leaves.
        stacked: how many frames each leaf is a stack of, of those that are stacks.
    """

    size: int
    num_envs: int
    layout: Layout
    stacked: dict[Leaf, int]

    @classmethod
    def of(cls, ring: Ring) -> Self:
        """What a ring whose layout is known would have."""
        return cls(ring.size, ring.envs, dict(ring.layout), ring.stacked)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The one of a directory; None where it is empty, or is not there.

        Raises:
            PersistenceError: it is of another format, or the directory is something else.
            DamageError: it is not what was written.
        """
        path = directory / NAME
        if not path.exists():
            if directory.exists() and not directory.is_dir():
                raise PersistenceError(f"{directory} is no directory; name one, or none")
            others = sorted(
                {entry.name for entry in directory.iterdir()} - {lock.NAME, unfinished(path).name}
                if directory.exists()
                else ()
            )
            if others:
                raise PersistenceError(
                    f"{directory} holds something else ({', '.join(others[:3])}{', ...' if others[3:] else ''}) and no "
                    f"{NAME}; name a directory that is empty or not there yet. Of a storage that lost its {NAME}, "
                    f"storages.persistent.repair makes it anew"
                )
            return None
        with damage_told(path):
            return cls.from_facts(checked_facts(path))

    def write(self, directory: Path, durable: bool) -> None:
        """Put it into a directory, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_facts(directory / NAME, self.facts(), durable)

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "what": _WHAT,
            "format": FORMAT,
            "size": self.size,
            "num_envs": self.num_envs,
            "layout": [[list(path), leaf.dtype.str, list(leaf.shape)] for path, leaf in self.layout.items()],
            "stacked_frames": [[list(path), depth] for path, depth in self.stacked.items()],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`facts`."""
        return cls(
            count_of(facts, "size"),
            count_of(facts, "num_envs"),
            layout_of(facts),
            {tuple(path): depth for path, depth in facts["stacked_frames"]},
        )

    def ring(self, owner: str) -> Ring:
        """An empty ring for what is there; ``owner`` is its name in errors."""
        names = {path[-1]: depth for path, depth in self.stacked.items()}
        whole = next((depth for path, depth in self.stacked.items() if len(path) == 1), 0)
        ring = Ring(self.size, owner, self.num_envs, allow_nonfinite=True, stacked_frames=whole or names)
        ring.prepare(self.layout, self.num_envs)
        return ring

    def prepare(self, ring: Ring, directory: Path) -> None:
        """Give an empty ring the layout.

        Raises:
            PersistenceError: it was made for something else.
        """
        for name, there, here in (("size", self.size, ring.size), ("num_envs", self.num_envs, ring.num_envs)):
            if here not in (None, there):
                raise PersistenceError(
                    f"{directory} holds a storage with {name} {there}, this one has {here}; make it with {there}, or "
                    f"name another directory"
                )
        try:
            ring.prepare(self.layout, self.num_envs)
            stacked = ring.stacked
        except ValueError as error:
            raise PersistenceError(f"{directory} holds other observations: {error}") from None
        if stacked != self.stacked:
            raise PersistenceError(
                f"{directory} holds stacked frames {_named(self.stacked)}, this storage is told of {_named(stacked)}; "
                f"make it for the same environments, or name another directory"
            )


def _named(stacked: Mapping[Leaf, int]) -> dict[str, int]:
    return {text(path): depth for path, depth in stacked.items()}
