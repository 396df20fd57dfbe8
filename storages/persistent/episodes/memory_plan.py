"""Division of the memory of a storage of episodes among its parts."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storages.core.ring.layout import FieldKey, Layout
from storages.core.sampling.priority_trees import BYTES_OF_A_HISTOGRAM, BYTES_OF_A_RANK
from storages.persistent.episodes.episode_manifest import EpisodeManifest, columns_of
from storages.persistent.log.manifest import empty_ring
from storages.sequence_settings import Episodes
from storages.transition import SUCCESSORS

DEFAULT_BYTES = 1 << 30
"""Memory of a storage that has neither a size nor ``memory_bytes``."""
RUNNING_STEPS = 1024
"""Initial steps of the memtable, if memory allows."""
_SEGMENT_BYTES, _FEWEST_SEGMENT_ROWS, _MOST_SEGMENT_ROWS = 1 << 20, 1024, 1 << 16
_PRIORITY_BYTES = 20
"""Bytes of a transition's priority and error."""
_INDEX_BYTES, _START_BYTES = 16, 24
"""Bytes of a transition, and of an episode, in the episode index, including those while it is enlarged."""
_RING, _ENDS, _RUNNING, _PIECE = 0.55, 0.1, 0.1, 1 / 32
"""Shares of the memory: ring, final observations of its episodes, running episodes, longest piece of an episode."""
_FEWEST_PIECES = 4
"""Pieces of an episode that the ring must have room for."""
_SHARE_OF_A_SEGMENT = 24
"""Multiple of the largest segment that must fit: several are read ahead, each in its disk and its ring format."""


@dataclass(frozen=True)
class MemoryPlan:
    """Limits that follow from a memory budget.

    Args:
        steps: most transitions in the ring.
        episodes: most episodes in the ring.
        longest: most steps of an episode; a longer one is stored in pieces.
        segment_rows: rows of a segment in a new directory.
        running_steps: initial steps of the memtable.
        waiting_bytes: bytes of segments that may wait to be written; None for no limit.
    """

    steps: int
    episodes: int
    longest: int
    segment_rows: int
    running_steps: int
    waiting_bytes: int | None


@dataclass(frozen=True)
class MemoryBudget:
    """Memory that a storage of episodes may take.

    Args:
        owner: the storage's name, for errors.
        size: most live transitions; None for no limit.
        memory_bytes: bytes of memory; None for as many as ``size`` transitions take, or :data:`DEFAULT_BYTES`.
        episodes: the window if batches hold whole episodes; None for transitions or sequences.
        by_rank: whether priorities are rank-based, which takes more memory.
    """

    owner: str
    size: int | None
    memory_bytes: int | None
    episodes: Episodes | None
    by_rank: bool

    def plan(self, layout: Layout, stacked: Mapping[FieldKey, int], num_envs: int) -> MemoryPlan:
        """Return the plan for transitions of a layout.

        Raises:
            ValueError: ``memory_bytes`` is too small.
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
        # The end of an episode has its own next observation, among other leaves.
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
        """Refuse a directory whose largest segment, of ``rows`` rows, is too large for the memory.

        Raises:
            ValueError: it is too large.
        """
        needed = int(rows * _row_on_disk(manifest.layout, manifest.stacked) * _SHARE_OF_A_SEGMENT)
        if needed > (self.memory_bytes or needed):
            raise ValueError(
                f"{self.owner}: memory_bytes must be at least {needed} for the longest episodes in {folder}, "
                f"got {self.memory_bytes}"
            )


def _row_on_disk(layout: Layout, stacked: Mapping[FieldKey, int]) -> int:
    """Return the uncompressed bytes of a row on disk."""
    return sum(column.layout.count * column.layout.dtype.itemsize for column in columns_of(layout, stacked, 1))


def _bytes_of_a_row(layout: Layout, stacked: Mapping[FieldKey, int]) -> int:
    fewer, more = (empty_ring(layout, stacked, size, "", 1).columns.nbytes for size in (64, 128))
    return (more - fewer) // 64


def _power_of_two(number: float, least: int, most: int) -> int:
    """Return the largest power of two up to ``number``, clipped to [least, most], which are powers of two."""
    power = least
    while 2 * power <= min(number, most):
        power *= 2
    return power
