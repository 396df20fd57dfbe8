"""Manifest of a directory of episodes: ``episodes.json``, with the layout of all segments."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from storages.core.ring.layout import FieldKey, Layout, LeafLayout
from storages.files import make_directory
from storages.persistent.log.chunks import Chunks, metadata, with_rows
from storages.persistent.log.commit_log import is_number
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
    relative: str = ""
    """Relative path to it from the directory that it precedes, for directories that are moved together; empty in a
    manifest of an earlier version."""

    @classmethod
    def of(cls, facts: list[Any]) -> Self:
        """Parse what a manifest says.

        Raises:
            ValueError: it says something else.
        """
        ancestor = cls(*facts)
        numbers, paths = (ancestor.commit, ancestor.checksum), (ancestor.directory, ancestor.relative)
        if not all(map(is_number, numbers)) or not all(type(path) is str and "\0" not in path for path in paths):
            raise ValueError(f"{facts!r} as an ancestor")
        return ancestor


@dataclass(frozen=True)
class EpisodeManifest(Manifest):
    """Layout of all segments of a directory.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: number of stacked frames of each leaf that is a frame stack.
        segment_rows: rows of a segment; each begins at a multiple of this.
        ancestors: the directories whose segments precede its own: that which it continues, the one before that, ...
        zarr: zarr metadata, by file name.
    """

    name = "episodes.json"
    what = "whole episodes, kept by pytorchrl's storages"
    made_before = frozenset({WAL_FOLDER, GROUP})

    segment_rows: int
    ancestors: tuple[Ancestor, ...]
    zarr: dict[str, dict[str, Any]]

    @classmethod
    def made(
        cls,
        layout: Layout,
        stacked: Mapping[FieldKey, int],
        segment_rows: int,
        ancestors: tuple[Ancestor, ...] = (),
    ) -> Self:
        """Make the manifest of a new directory."""
        return cls(layout, dict(stacked), segment_rows, ancestors, metadata(columns_of(layout, stacked, segment_rows)))

    def with_ancestor_in(self, place: Path, directory: Path) -> Self:
        """Return the manifest of ``directory`` with another place of the directory that it continues."""
        relative = os.path.relpath(place, directory) if self.has_records_of_ancestors else ""
        moved = self.ancestors[0]._replace(directory=str(place), relative=relative)
        return replace(self, ancestors=(moved, *self.ancestors[1:]))

    @property
    def columns(self) -> list[Chunks]:
        """The columns on disk, one for each stored leaf."""
        return columns_of(self.layout, self.stacked, self.segment_rows)

    @property
    def has_records_of_ancestors(self) -> bool:
        """Whether the log of segments records those of the ancestors, too; in earlier versions, theirs does."""
        return any(ancestor.relative for ancestor in self.ancestors)

    def _other_facts(self) -> dict[str, Any]:
        return {
            "segment_rows": self.segment_rows,
            # Only this one was written by earlier versions.
            "ancestor": list(self.ancestors[0][:3]) if self.ancestors else None,
            "zarr": self.zarr,
        } | ({"ancestors": [list(each) for each in self.ancestors]} if self.ancestors else {})

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Invert :meth:`facts`."""
        zarr = {name: dict(said) for name, said in facts["zarr"].items()}
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in zarr):
            raise ValueError(f"{sorted(zarr)} lie outside")
        nearest = [facts["ancestor"]] if facts["ancestor"] else []
        ancestors = tuple(map(Ancestor.of, facts.get("ancestors", nearest)))
        return cls(layout_of(facts), stacks_of(facts), count_of(facts, "segment_rows"), ancestors, zarr)

    # Metadata of zarr

    def write_zarr_metadata(self, directory: Path, rows: int, durable: bool) -> None:
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
