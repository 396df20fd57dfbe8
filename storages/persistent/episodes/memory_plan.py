"""Division of the memory that a storage of episodes may take."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storages.core.ring.layout import FieldKey, Layout
from storages.core.sampling.priority_trees import BYTES_OF_A_HISTOGRAM, BYTES_OF_A_RANK
from storages.persistent.episodes.episode_manifest import EpisodeManifest, columns_of
from storages.persistent.log.manifest import empty_ring
from storages.transition import SUCCESSORS
from storages.windows import Episodes

DEFAULT_BYTES = 1 << 30
"""Of a storage without a bound, unless it is said."""
RUNNING_STEPS = 1024
"""Steps that the memtable has room for at first, if memory allows."""
_SEGMENT_BYTES, _FEWEST_SEGMENT_ROWS, _MOST_SEGMENT_ROWS = 1 << 20, 1024, 1 << 16
_PRIORITY_BYTES = 20
"""Of a transition's priority and error."""
_INDEX_BYTES, _START_BYTES = 16, 24
"""Of where a transition's episode begins and ends; of an episode that can be drawn, and while more room is made."""
_RING, _ENDS, _RUNNING, _PIECE = 0.55, 0.1, 0.1, 1 / 32
"""Shares: of the ring, of what its episodes ended with, of episodes that run, of the longest piece of an episode."""
_FEWEST_PIECES = 4
_SHARE_OF_A_SEGMENT = 24
"""Some of them are on their way into memory, each as it is on disk and as it is in the ring."""


@dataclass(frozen=True)
class MemoryPlan:
    """Limits that follow from the memory.

    Args:
        steps: transitions in the ring.
        episodes: in the ring.
        longest: steps of the longest piece that an episode is kept in; None for any.
        segment_rows: rows that a new archive's segments begin at multiples of.
        running_steps: steps that there is room for at first for episodes that run.
        waiting_bytes: of segments that wait to be written; None for any.
    """

    steps: int
    episodes: int
    longest: int
    segment_rows: int
    running_steps: int
    waiting_bytes: int | None


@dataclass(frozen=True)
class MemoryBudget:
    """What a storage of episodes may take.

    Args:
        owner: the storage's name, for errors.
        size: transitions that stay; None for no bound.
        memory_bytes: None for as much as ``size`` takes, or :data:`DEFAULT_BYTES`.
        episodes: of which batches are made; None for single transitions, or sequences.
        by_rank: whether priorities are those of ranks, which take more room.
    """

    owner: str
    size: int | None
    memory_bytes: int | None
    episodes: Episodes | None
    by_rank: bool

    def plan(self, layout: Layout, stacked: Mapping[FieldKey, int], num_envs: int) -> MemoryPlan:
        """Return the plan for transitions of a layout.

        Raises:
            ValueError: it is too little memory.
        """
        size, memory_bytes, episodes = self.size, self.memory_bytes, self.episodes
        on_disk = _row_on_disk(layout, stacked)
        rows = _power_of_two(_SEGMENT_BYTES / on_disk, _FEWEST_SEGMENT_ROWS, _MOST_SEGMENT_ROWS)
        if size is not None:
            rows = min(rows, _power_of_two(size / 8, 1, rows))
        if memory_bytes is None and size is not None:
            return MemoryPlan(size, size, size, rows, RUNNING_STEPS, None)
        budget = DEFAULT_BYTES if memory_bytes is None else memory_bytes
        in_ring, of_ranks = _bytes_of_a_row(layout, stacked) + _PRIORITY_BYTES, 0
        if self.by_rank:
            in_ring, of_ranks = in_ring + BYTES_OF_A_RANK, BYTES_OF_A_HISTOGRAM
            budget -= of_ranks
        if episodes is not None:
            in_ring += _INDEX_BYTES + -(-_START_BYTES // (episodes.longest or sys.maxsize))
        steps = int(_RING * budget / in_ring)
        of_a_byte = min(min(_PIECE, _RUNNING / num_envs) / on_disk, _RING / _FEWEST_PIECES / in_ring)
        longest, asked = int(of_a_byte * budget), 0 if episodes is None else episodes.longest or 0
        if longest < max(2, asked):
            needed = int(max(2, asked) / of_a_byte) + 1 + of_ranks
            what = f"pieces of {asked} steps of such transitions, which {episodes} asks for" if asked else ""
            raise ValueError(
                f"{self.owner}: memory_bytes must be at least {needed} for {what or 'such transitions'}, got "
                f"{budget + of_ranks}"
            )
        rows = min(rows, _power_of_two(longest, 1, rows))
        # The leaves that have final values at the end of an episode.
        ends = sum(leaf.count * leaf.dtype.itemsize for path, leaf in layout.items() if path[0] in SUCCESSORS)
        if episodes is not None:
            ends += _START_BYTES
        return MemoryPlan(
            steps if size is None else min(size, steps),
            max(1, _power_of_two(_ENDS * budget / max(1, ends), 1, steps)),
            longest if size is None else min(size, longest),
            rows,
            max(1, min(RUNNING_STEPS, longest)),
            int(2 * _PIECE * budget),
        )

    def refuse_larger(self, rows: int, manifest: EpisodeManifest, folder: Path) -> None:
        """Refuse segments of so many rows in a directory, if they cannot be exchanged within the memory.

        Raises:
            ValueError: they cannot.
        """
        needed = int(rows * _row_on_disk(manifest.layout, manifest.stacked) * _SHARE_OF_A_SEGMENT)
        if needed > (self.memory_bytes or needed):
            raise ValueError(
                f"{self.owner}: memory_bytes must be at least {needed} for the longest episodes in {folder}, "
                f"got {self.memory_bytes}"
            )


def _row_on_disk(layout: Layout, stacked: Mapping[FieldKey, int]) -> int:
    """Bytes of a row before it is compressed."""
    return sum(column.layout.count * column.layout.dtype.itemsize for column in columns_of(layout, stacked, 1))


def _bytes_of_a_row(layout: Layout, stacked: Mapping[FieldKey, int]) -> int:
    fewer, more = (empty_ring(layout, stacked, size, "", 1).columns.nbytes for size in (64, 128))
    return (more - fewer) // 64


def _power_of_two(number: float, least: int, most: int) -> int:
    """The largest that is not above a number, within bounds that are powers of two."""
    power = least
    while 2 * power <= min(number, most):
        power *= 2
    return power
