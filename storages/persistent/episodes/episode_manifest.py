"""Manifest of a directory of episodes: ``episodes.json``, with the layout of all segments."""

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
"""Subfolders of the segments and of the write-ahead log."""


class Ancestor(NamedTuple):
    """Directory whose episodes precede those of another one, and its last commit that belongs to them."""

    directory: str
    commit: int
    checksum: int


@dataclass(frozen=True)
class EpisodeManifest(Manifest):
    """Layout of all segments of a directory.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: number of stacked frames of each leaf that is a frame stack.
        segment_rows: rows of a segment; each begins at a multiple of this.
        ancestor: the directory whose segments precede its own, if any.
        zarr: zarr metadata, by file name.
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
        """Make the manifest of a new directory."""
        return cls(layout, dict(stacked), segment_rows, ancestor, metadata(columns_of(layout, stacked, segment_rows)))

    @property
    def columns(self) -> list[Chunks]:
        """The columns on disk, one for each stored leaf."""
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
        """Update the zarr metadata files to a number of rows."""
        for name, said in self.zarr.items():
            path, facts = directory / GROUP / name, with_rows(said, rows)
            if _read(path) != facts:
                make_directory(path.parent, durable)
                write_json(path, facts, durable)

    def flaws_of_zarr(self, directory: Path) -> list[str]:
        """Describe damaged zarr metadata files; the number of rows is not checked, because it may be out of date."""
        return [
            f"{directory / GROUP / name} is damaged"
            for name, said in self.zarr.items()
            if (found := _read(directory / GROUP / name)) is None or with_rows(found, 0) != with_rows(said, 0)
        ]


def columns_of(layout: Layout, stacked: Mapping[FieldKey, int], segment_rows: int) -> list[Chunks]:
    """Return the columns on disk: all leaves but next observations and the like, frame stacks as single frames."""
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
