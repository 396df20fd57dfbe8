"""Manifest of a directory of episodes, a file that people can read: ``episodes.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from storages.core.ring.layout import FieldKey, Layout, LeafLayout
from storages.errors import PersistenceError
from storages.persistent.log.chunks import Chunks, metadata, with_rows
from storages.persistent.log.files import make_directory, unfinished
from storages.persistent.log.json_file import (
    count_of,
    layout_facts,
    layout_of,
    name_damage,
    read_verified,
    write_json,
    write_verified,
)
from storages.persistent.log.records import FORMAT
from storages.transition import SUCCESSORS

NAME = "episodes.json"
GROUP = "episodes"
_WHAT = "whole episodes, kept by pytorchrl's storages"


@dataclass(frozen=True)
class Ancestor:
    """The archive whose episodes come before an archive's own.

    Args:
        directory: where it is.
        record: number of its last record that counts.
        checksum: of that record.
    """

    directory: str
    record: int
    checksum: int


@dataclass(frozen=True)
class EpisodeManifest:
    """Layout of all segments of a directory.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: how many frames each leaf is a stack of, of those that are stacks.
        segment_rows: rows that segments begin at multiples of.
        ancestor: what comes before its own segments.
        zarr: what zarr is told, by names of files.
    """

    layout: Layout
    stacked: dict[FieldKey, int]
    segment_rows: int
    ancestor: Ancestor | None
    zarr: dict[str, dict[str, Any]]

    @classmethod
    def made(
        cls, layout: Layout, stacked: Mapping[FieldKey, int], segment_rows: int, ancestor: Ancestor | None = None
    ) -> Self:
        """Of a new archive."""
        return cls(layout, dict(stacked), segment_rows, ancestor, metadata(columns_of(layout, stacked, segment_rows)))

    @property
    def columns(self) -> list[Chunks]:
        """How each leaf lies on disk."""
        return columns_of(self.layout, self.stacked, self.segment_rows)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The one of a directory; None where there is none.

        Raises:
            PersistenceError: it is of another format, or the directory holds something else.
            DamageError: it is not what was written.
        """
        path = directory / NAME
        if not path.exists():
            known = {"lock", "wal", GROUP, unfinished(path).name}
            others = sorted({entry.name for entry in directory.iterdir()} - known) if directory.is_dir() else []
            if others:
                raise PersistenceError(
                    f"{directory} holds something else ({', '.join(others[:3])}{', ...' if others[3:] else ''}) and no "
                    f"{NAME}; name a directory that is empty or not there yet"
                )
            return None
        with name_damage(path):
            return cls.from_facts(read_verified(path))

    def write(self, directory: Path, durable: bool) -> None:
        """Put it into a directory, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_verified(directory / NAME, self.facts(), durable)

    def facts(self) -> dict[str, Any]:
        """As plain data."""
        ancestor = self.ancestor
        return {
            "what": _WHAT,
            "format": FORMAT,
            "layout": layout_facts(self.layout),
            "stacked_frames": [[list(path), depth] for path, depth in self.stacked.items()],
            "segment_rows": self.segment_rows,
            "ancestor": ancestor and [ancestor.directory, ancestor.record, ancestor.checksum],
            "zarr": self.zarr,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`facts`."""
        zarr = {name: dict(said) for name, said in facts["zarr"].items()}
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in zarr):
            raise ValueError(f"{sorted(zarr)} lie outside")
        return cls(
            layout_of(facts),
            {tuple(path): depth for path, depth in facts["stacked_frames"]},
            count_of(facts, "segment_rows"),
            Ancestor(*facts["ancestor"]) if facts["ancestor"] else None,
            zarr,
        )

    # What zarr is told

    def tell_zarr(self, directory: Path, rows: int, durable: bool) -> None:
        """Write the zarr metadata of so many rows, where it differs.

        Raises:
            OSError: it cannot be written.
        """
        for name, said in self.zarr.items():
            path, facts = directory / GROUP / name, with_rows(said, rows)
            if _read(path) != facts:
                make_directory(path.parent, durable)
                write_json(path, facts, durable)

    def flaws_of_zarr(self, directory: Path) -> list[str]:
        """Describe damaged zarr metadata; the number of rows may be too small."""
        return [
            f"{directory / GROUP / name} is damaged"
            for name, said in self.zarr.items()
            if (found := _read(directory / GROUP / name)) is None or with_rows(found, 0) != with_rows(said, 0)
        ]


def columns_of(layout: Layout, stacked: Mapping[FieldKey, int], segment_rows: int) -> list[Chunks]:
    """How the leaves of a transition lie on disk: those that are no other's next, stacks by their newest frames."""
    return [
        Chunks.of(path, LeafLayout(leaf.shape[1:], leaf.dtype) if path in stacked else leaf, segment_rows)
        for path, leaf in layout.items()
        if path[0] not in SUCCESSORS
    ]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and isinstance(facts.get("shape", [0]), list) else None
