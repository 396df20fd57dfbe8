"""Manifest of a directory of episodes, a file that people can read: ``episodes.json``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from storages.core.ring.layout import FieldKey, Layout, LeafLayout
from storages.persistent.log.chunks import Chunks, metadata, with_rows
from storages.persistent.log.files import make_directory
from storages.persistent.log.json_file import write_json
from storages.persistent.log.manifest import Manifest, count_of, layout_of, stacks_of
from storages.transition import SUCCESSORS

GROUP, WAL_FOLDER = "episodes", "wal"
"""Subfolders of segments, and of the write-ahead log."""


class Ancestor(NamedTuple):
    """The archive whose episodes come before an archive's own, and its last commit that counts."""

    directory: str
    commit: int
    checksum: int


@dataclass(frozen=True)
class EpisodeManifest(Manifest):
    """Layout of all segments of a directory.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: how many frames each leaf is a stack of, of those that are stacks.
        segment_rows: rows that segments begin at multiples of.
        ancestor: what comes before its own segments.
        zarr: metadata of zarr, by names of files.
    """

    name = "episodes.json"
    what = "whole episodes, kept by pytorchrl's storages"
    made_before = frozenset({WAL_FOLDER, GROUP})

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

    def _other_facts(self) -> dict[str, Any]:
        return {
            "segment_rows": self.segment_rows,
            "ancestor": self.ancestor and list(self.ancestor),
            "zarr": self.zarr,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Invert :meth:`facts`."""
        zarr = {name: dict(said) for name, said in facts["zarr"].items()}
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in zarr):
            raise ValueError(f"{sorted(zarr)} lie outside")
        ancestor = Ancestor(*facts["ancestor"]) if facts["ancestor"] else None
        return cls(layout_of(facts), stacks_of(facts), count_of(facts, "segment_rows"), ancestor, zarr)

    # Metadata of zarr

    def tell_zarr(self, directory: Path, rows: int, durable: bool) -> None:
        """Write the zarr metadata of so many rows, where it differs."""
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
