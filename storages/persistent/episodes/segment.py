"""Segments: immutable groups of whole episodes, and their records in the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.stacks import REPEAT, ZERO
from storages.core.ring.snapshot import ArrayKey
from storages.errors import DamageError
from storages.persistent.episodes.episode_batch import PREFIX_FRAMES, EpisodeBatch
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.log.chunks import Chunks
from storages.persistent.log.commit_log import is_number
from storages.persistent.log.records import Record

_LENGTHS, _LEADING, _PADDING, _CHECKSUMS = "lengths", "leading", "paddings", "checksums"


@dataclass(frozen=True)
class Segment:
    """Description of a segment: a group of whole episodes that are written together.

    Args:
        first: number of the first transition, counted from the first one ever stored in the directory.
        row: first row in the arrays.
        nbytes: bytes on disk.
        lengths: (episodes,) int32, steps of each episode.
        leading: (episodes,) int32, rows before the first step of each episode: older frames of its first stack.
        paddings: (episodes,) int32, by leaf: how the first frame stack of each episode is padded.
        checksums: (chunks,) uint32, by leaf.
        facts: facts of the episodes that have any, by position in the segment.
        directory: the zarr group.
        ancestor: which of the directory's ancestors has it: 1 for that which it continues; 0 for its own segments.
    """

    first: int
    row: int
    nbytes: int
    lengths: NDArray[np.int32]
    leading: NDArray[np.int32]
    paddings: dict[tuple[str, ...], NDArray[np.int32]]
    checksums: dict[tuple[str, ...], NDArray[np.uint32]]
    facts: Mapping[str, Mapping[str, Any]]
    directory: Path
    ancestor: int = 0

    @property
    def steps(self) -> int:
        """Number of transitions."""
        return int(self.lengths.sum())

    @property
    def end(self) -> int:
        """Number after the last transition."""
        return self.first + self.steps

    @property
    def rows(self) -> int:
        """Number of rows in the arrays."""
        return int(self.lengths.sum() + self.leading.sum()) + len(self.lengths)

    def is_same_as(self, other: "Segment") -> bool:
        """Return whether another segment has the same place and checksums."""
        return self.directory == other.directory and self.has_content_of(other)

    def has_content_of(self, other: "Segment") -> bool:
        """Return whether another segment has the same rows and checksums, in any directory."""
        return (
            (self.first, self.row) == (other.first, other.row)
            and self.checksums.keys() == other.checksums.keys()
            and all(np.array_equal(sums, other.checksums[leaf]) for leaf, sums in self.checksums.items())
        )

    def description(self) -> str:
        """Return a description for error messages."""
        return f"{len(self.lengths)} episodes, transitions {self.first} to {self.end}"


def flaw_of_record(record: Record, manifest: EpisodeManifest) -> str | None:
    """Describe what is invalid in a record of the log of segments; return None if nothing is."""
    facts = record.facts
    watermarks = facts.get("watermarks")
    if not is_number(facts.get("next_row")) or not isinstance(watermarks, list) or not all(map(is_number, watermarks)):
        return "no watermarks, or no row at which the next segment begins"
    try:
        segment = segment_of(record, Path())
        if segment is not None and segment.ancestor not in range(len(manifest.ancestors) + 1):
            return f"a segment of ancestor {segment.ancestor!r}, of {len(manifest.ancestors)}"
        return None if segment is None else _flaw_of_segment(segment, manifest)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return f"a malformed segment: {error!r}"


def _flaw_of_segment(segment: Segment, manifest: EpisodeManifest) -> str | None:
    count, rows = len(segment.lengths), segment.rows
    if count == 0 or segment.lengths.min() < 1 or len(segment.leading) != count or segment.leading.min() < 0:
        return "an episode without steps"
    if segment.row < 0 or segment.row % manifest.segment_rows:
        return f"row {segment.row} as its first"
    for column in manifest.columns:
        chunks = -(-rows // column.rows) if column.layout.count else 0
        if len(segment.checksums[column.leaf]) != chunks:
            return f"{len(segment.checksums[column.leaf])} chunks of {rows} rows"
    for leaf, depth in manifest.stacked.items():
        kinds = segment.paddings[leaf]
        if len(kinds) != count or not np.isin(kinds, (PREFIX_FRAMES, REPEAT, ZERO)).all():
            return f"{kinds.tolist()} as padding of frame stacks"
        if (segment.leading[kinds == PREFIX_FRAMES] < depth - 1).any():
            return "too few frames to pad a frame stack"
    return None


def read_segment(segment: Segment, columns: Sequence[Chunks]) -> EpisodeBatch:
    """Read the episodes of a segment.

    Raises:
        DamageError: a chunk is damaged; the text names the file and the episodes.
    """
    read = {}
    for column in columns:
        target = np.empty((segment.rows, *column.layout.shape), column.layout.dtype)
        checksums = segment.checksums[column.leaf] if column.layout.count else np.zeros(0, np.uint32)
        for place, checksum in enumerate(checksums.tolist()):
            first, number = place * column.rows, segment.row // column.rows + place
            try:
                column.read(segment.directory, number, checksum, target[first : first + column.rows])
            except DamageError as damage:
                raise DamageError(f"{damage}, which holds a part of {segment.description()}") from None
        read[column.leaf] = target
    count = len(segment.lengths)
    return EpisodeBatch(
        read,
        segment.lengths.astype(np.int64),
        segment.leading.astype(np.int64),
        segment.paddings,
        tuple(segment.facts.get(str(place), {}) for place in range(count)),
    )


def record_of(number: int, segment: Segment | None, facts: dict[str, Any], end: int) -> Record:
    """Return the record of a commit; if it adds no segment, ``end`` is the number of the next transition."""
    if segment is None:
        return Record(number, end, end, facts, {})
    arrays = {ArrayKey(_LENGTHS): (segment.lengths,), ArrayKey(_LEADING): (segment.leading,)}
    arrays |= {ArrayKey(_PADDING, leaf): (padding,) for leaf, padding in segment.paddings.items()}
    arrays |= {ArrayKey(_CHECKSUMS, leaf): (sums,) for leaf, sums in segment.checksums.items()}  # type: ignore[misc]
    facts = facts | {"row": segment.row, "bytes": segment.nbytes, "facts": segment.facts}
    facts |= {"ancestor": segment.ancestor} if segment.ancestor else {}
    return Record(number, segment.first, segment.end, facts, arrays)  # type: ignore[arg-type]


def segment_of(entry: Record, directory: Path) -> Segment | None:
    """Return the segment of a record; None if the record adds none."""
    if ArrayKey(_LENGTHS) not in entry.arrays:
        return None
    facts = entry.facts

    def of_leaves(role: str) -> dict[tuple[str, ...], Any]:
        # Copies, so that the memory map of the log can be released.
        return {name.leaf: pieces[0].copy() for name, pieces in entry.arrays.items() if name.role == role}

    return Segment(
        entry.first,
        facts["row"],
        facts["bytes"],
        entry.arrays[ArrayKey(_LENGTHS)][0].copy(),
        entry.arrays[ArrayKey(_LEADING)][0].copy(),
        of_leaves(_PADDING),
        of_leaves(_CHECKSUMS),
        facts["facts"],
        directory,
        facts.get("ancestor", 0),
    )
