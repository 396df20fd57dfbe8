"""Volumes: whole episodes that were written in one go, and the records that tell of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.stacks import REPEAT, ZERO
from storages.core.ring.snapshot import ArrayKey
from storages.errors import DamageError
from storages.persistent.episodes.archive_manifest import ArchiveManifest
from storages.persistent.episodes.chunks import Chunks
from storages.persistent.episodes.episode_batch import LEADING, Recording
from storages.persistent.log.records import Block

_LENGTHS, _LEADING, _PADDING, _CHECKSUMS = "lengths", "leading", "paddings", "checksums"


class Record(TypedDict):
    """A state of the archive, as plain data: the number of its last record, and the checksum that tells it apart."""

    record: int
    checksum: int


@dataclass(frozen=True)
class Volume:
    """Whole episodes that were written in one go.

    Args:
        first: number of the first transition, counted from the first that the archive ever held.
        row: the first row in the arrays.
        nbytes: on disk.
        lengths: (episodes,) int32, steps of each.
        leading: (episodes,) int32, rows of each before its first.
        paddings: (episodes,) int32, by leaf: how first stacks of frames are filled up.
        checksums: (chunks,) uint32, by leaf.
        facts: of episodes, by their place among these; of those that have any.
        directory: where the zarr group is.
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

    @property
    def steps(self) -> int:
        """Transitions."""
        return int(self.lengths.sum())

    @property
    def end(self) -> int:
        """Number after the last transition."""
        return self.first + self.steps

    @property
    def rows(self) -> int:
        """Rows of the arrays that it has."""
        return int(self.lengths.sum() + self.leading.sum()) + len(self.lengths)

    def is_same_as(self, other: "Volume") -> bool:
        """Whether it is the same episodes at the same place."""
        return (self.first, self.row, self.directory) == (other.first, other.row, other.directory) and all(
            np.array_equal(sums, other.checksums[leaf]) for leaf, sums in self.checksums.items()
        )

    def described(self) -> str:
        """In words."""
        return f"{len(self.lengths)} episodes, transitions {self.first} to {self.end}"


def flaw_of(volume: Volume, manifest: ArchiveManifest) -> str | None:
    """What a volume tells of itself that cannot be, in words; None where all can."""
    count, rows = len(volume.lengths), volume.rows
    if count == 0 or volume.lengths.min() < 1 or len(volume.leading) != count or volume.leading.min() < 0:
        return "an episode without steps"
    if volume.row < 0 or volume.row % manifest.volume_rows:
        return f"row {volume.row} as its first"
    for column in manifest.columns:
        chunks = -(-rows // column.rows) if column.layout.count else 0
        if len(volume.checksums[column.leaf]) != chunks:
            return f"{len(volume.checksums[column.leaf])} chunks of {rows} rows"
    for leaf, depth in manifest.stacked.items():
        kinds = volume.paddings[leaf]
        if len(kinds) != count or not np.isin(kinds, (LEADING, REPEAT, ZERO)).all():
            return f"{kinds.tolist()} as what stacks of frames are filled up with"
        if (volume.leading[kinds == LEADING] < depth - 1).any():
            return "too few frames to fill up a stack with"
    return None


def read_volume(volume: Volume, columns: Sequence[Chunks]) -> Recording:
    """The episodes of a volume.

    Raises:
        DamageError: not all of it is what was written; the text names the file and the episodes.
    """
    read = {}
    for column in columns:
        target = np.empty((volume.rows, *column.layout.shape), column.layout.dtype)
        checksums = volume.checksums[column.leaf] if column.layout.count else np.zeros(0, np.uint32)
        for place, checksum in enumerate(checksums.tolist()):
            first, number = place * column.rows, volume.row // column.rows + place
            try:
                column.read(volume.directory, number, checksum, target[first : first + column.rows])
            except DamageError as damage:
                raise DamageError(f"{damage}, which holds a part of {volume.described()}") from None
        read[column.leaf] = target
    count = len(volume.lengths)
    return Recording(
        read,
        volume.lengths.astype(np.int64),
        volume.leading.astype(np.int64),
        volume.paddings,
        tuple(volume.facts.get(str(place), {}) for place in range(count)),
    )


def block_of(number: int, volume: Volume | None, facts: dict[str, Any], end: int) -> Block:
    """A record; where it tells of no volume, ``end`` is the number of the next transition."""
    if volume is None:
        return Block(number, end, end, facts, {})
    arrays = {ArrayKey(_LENGTHS): (volume.lengths,), ArrayKey(_LEADING): (volume.leading,)}
    arrays |= {ArrayKey(_PADDING, leaf): (padding,) for leaf, padding in volume.paddings.items()}
    arrays |= {ArrayKey(_CHECKSUMS, leaf): (sums,) for leaf, sums in volume.checksums.items()}  # type: ignore[misc]
    facts = facts | {"row": volume.row, "bytes": volume.nbytes, "facts": volume.facts}
    return Block(number, volume.first, volume.end, facts, arrays)  # type: ignore[arg-type]


def volume_of(block: Block, directory: Path) -> Volume | None:
    """What a record tells; None where it tells of no volume."""
    if ArrayKey(_LENGTHS) not in block.arrays:
        return None
    facts = block.facts

    def of_leaves(role: str) -> dict[tuple[str, ...], Any]:
        # Copies, so that the log's memory can go.
        return {name.leaf: pieces[0].copy() for name, pieces in block.arrays.items() if name.role == role}

    return Volume(
        block.first,
        facts["row"],
        facts["bytes"],
        block.arrays[ArrayKey(_LENGTHS)][0].copy(),
        block.arrays[ArrayKey(_LEADING)][0].copy(),
        of_leaves(_PADDING),
        of_leaves(_CHECKSUMS),
        facts["facts"],
        directory,
    )
