"""Memtable: steps of episodes that are in no segment yet, with a write-ahead log.

Steps of several environments lie side by side in a ring, which is logged like that of any storage, so that a killed
process loses none that it committed. The ring grows with the longest episode; rows that are in segments are dropped,
and log files with them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.log.commit_log import Position
from storages.persistent.replay.write_ahead_log import WriteAheadLog
from storages.transition import DONE, Sample

State = Callable[[], dict[str, Any]]
_UNKNOWN = -1


class EpisodeSpan(NamedTuple):
    """An episode that came to an end, was broken off, or is so long that it is kept in pieces, of which this is one."""

    env: int
    first: int
    """Number of its first row."""
    end: int
    """Number after its last."""
    visible_at: int
    """Number after the row that shows that it is finished: its last, or the one after that where it was broken off."""


class Memtable:
    """Steps of unfinished episodes, in a ring with a write-ahead log.

    Args:
        ring: still empty.
        wal: of the ring.
    """

    def __init__(self, ring: Ring, wal: WriteAheadLog) -> None:
        self.ring, self.wal = ring, wal
        self.longest: int | None = None
        """Steps of the longest piece that an episode is kept in."""
        self.start_rows: NDArray[np.int64] = np.zeros(0, np.int64)
        """(E,): first row of each unfinished episode; empty before the first step."""
        self._too_long_at = 0
        """Number of steps before which no episode that runs can have become too long."""
        self._put_aside = _UNKNOWN
        """Final observations in the ring after the newest step."""

    def roll_back(self, position: Position) -> dict[str, Any] | None:
        """Restore a commit; later ones are dropped. Return the state beside the ring, None if there is none."""
        state = self.wal.roll_back(position, at_once=True)
        self.start_rows, self._too_long_at, self._put_aside = np.zeros(0, np.int64), 0, _UNKNOWN
        return state

    def go_on_from(self, watermarks: Sequence[int]) -> list[EpisodeSpan]:
        """Say how many steps of each environment are kept elsewhere; returns which episodes are finished since."""
        self.start_rows, finished = finished_since(self.ring, watermarks, self.longest)
        return finished

    def insert(self, sample: Sample, state: State) -> list[EpisodeSpan]:
        """Store a step; returns which episodes it shows to be finished, those first that ended first.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            PersistenceError: earlier steps could not be written; nothing of this one was stored.
        """
        ring = self.ring
        if ring.steps >= self.wal.due:
            self.wal.commit_soon(state, None)
        if ring.live_steps == ring.size:
            self.make_room(2 * ring.size)
        ring.insert(sample)
        if not len(self.start_rows):
            self.start_rows = np.full(ring.envs, ring.first)
        # No new final observation means that no episode ended or was broken off.
        put_aside = ring.columns.finals.next_number
        finished: list[EpisodeSpan] = []
        if put_aside != self._put_aside:
            newest = ring.steps - 1
            finished = _shown_by(newest, ring.broken_after(newest - 1), ring.broken_after(newest), self.start_rows)
        self._put_aside = put_aside
        if self.longest is None or ring.steps < self._too_long_at:
            return finished
        return finished + self._cut(self.longest)

    def end_episodes(self, envs: NDArray[np.int64] | None) -> list[EpisodeSpan]:
        """End running episodes with the newest step; returns those that it finishes.

        Args:
            envs: of which environments; all where None.
        """
        ring = self.ring
        # A commit that is being written reads the newest row.
        self.wal.wait()
        running = np.flatnonzero(self.start_rows < ring.steps)
        which = np.zeros(len(self.start_rows), np.bool_)
        which[ring.break_off(running if envs is None else np.intersect1d(running, envs), truncate=True)] = True
        # The newest transition of the others belongs to a piece that is kept elsewhere as it was.
        ring.break_off(envs)
        self._put_aside = ring.columns.finals.next_number
        return _finish(which, ring.steps, ring.steps, self.start_rows)

    def _cut(self, longest: int) -> list[EpisodeSpan]:
        """Return the episodes that have become as long as ``longest``."""
        steps = self.ring.steps
        finished = _finish(steps - self.start_rows >= longest, steps, steps, self.start_rows)
        self._too_long_at = int(self.start_rows.min()) + longest
        return finished

    def make_room(self, size: int) -> None:
        """Have room for so many steps, which must be no fewer than there are."""
        self.ring.resize(size)
        self._put_aside = _UNKNOWN

    def batch(self, finished: EpisodeSpan) -> EpisodeBatch:
        """A copy of a finished episode, whose rows must still be there."""
        return EpisodeBatch.of(self.ring, finished.env, finished.first, finished.end)

    def release(self, unwritten: Sequence[EpisodeSpan] = ()) -> None:
        """Forget all rows but those of episodes that run, and of these."""
        if len(self.start_rows):
            needed = min([int(self.start_rows.min()), *(finished.first for finished in unwritten)])
            # Of an episode that is kept in pieces, the first stack of frames reaches back to the piece before.
            deepest = max(self.ring.stacked.values(), default=1)
            if needed - deepest + 1 > self.ring.first:
                self.ring.drop_before(needed - deepest + 1)

    def reset(self) -> None:
        """Forget everything."""
        self.wal.wait()
        self.ring.reset()
        self.wal.changed()
        self.start_rows, self._too_long_at = np.full(len(self.start_rows), self.ring.steps), 0
        self._put_aside = _UNKNOWN


def watermarks_of(state: Mapping[str, Any], archive: SegmentStore, logged: Ring) -> list[int]:
    """Return how many logged steps of each environment are in segments, or dropped.

    Raises:
        TypeError: the state is not one that a buffer of whole episodes wrote.
    """
    if not isinstance(state["live"], int):
        raise TypeError(f"the oldest transition is a number, got {state['live']!r}")
    envs, steps = logged.envs, logged.steps
    said, recorded = ([*watermarks, *[0] * envs][:envs] for watermarks in (state["watermarks"], archive.watermarks))
    return [min(max(one, two), steps) for one, two in zip(said, recorded, strict=True)]


def finished_since(
    ring: Ring, watermarks: Sequence[int], longest: int | None = None
) -> tuple[NDArray[np.int64], list[EpisodeSpan]]:
    """The episodes that rows of a ring finish, as if these had been inserted one after the other.

    Args:
        ring: whose rows.
        watermarks: of each environment, how many of its steps are kept elsewhere.
        longest: steps of the longest piece that an episode is kept in; None for any.

    Returns:
        The first row, (E,), of what each environment is at, and the episodes, those first that ended first.
    """
    known = np.array(watermarks, np.int64)
    begun: NDArray[np.int64] = np.maximum(ring.first, known)
    for env in np.flatnonzero((known < ring.first) & ~ring.columns.data(DONE)[ring.first % ring.rows, :, 0]).tolist():
        # What is left of an episode that was forgotten, or lost.
        ends = np.flatnonzero(ring.broken()[:, env])
        begun[env] = ring.oldest + ends[0] + 1 if len(ends) else ring.steps
    broken = ring.broken()
    ended: NDArray[np.bool_] = broken & ring.ended()
    shows = np.asarray(broken.any(axis=1))
    found: list[EpisodeSpan] = []
    for place, row in enumerate(range(ring.oldest, ring.steps)):
        before = max(0, place - 1)
        if shows[place] or shows[before]:
            found += _shown_by(row, broken[before] & (place > 0), ended[place], begun)
        if longest is not None and row + 1 - begun.min() >= longest:
            found += _finish(row + 1 - begun >= longest, row + 1, row + 1, begun)
    return begun, found


def _shown_by(
    row: int, broken_before: NDArray[np.bool_], ended: NDArray[np.bool_], start_rows: NDArray[np.int64]
) -> list[EpisodeSpan]:
    """Return the episodes that a row shows to be finished.

    Args:
        row: its number.
        broken_before: (E,), where it does not continue the row before.
        ended: (E,), where an episode ends with it.
        start_rows: (E,), first rows of the running episodes, written.
    """
    # No step said that these ended, but another episode goes on now.
    broken_off = _finish(broken_before & (start_rows < row), row, row + 1, start_rows)
    return broken_off + _finish(ended & (start_rows <= row), row + 1, row + 1, start_rows)


def _finish(which: NDArray[np.bool_], end: int, visible_at: int, start_rows: NDArray[np.int64]) -> list[EpisodeSpan]:
    finished = [EpisodeSpan(int(env), int(start_rows[env]), end, visible_at) for env in np.flatnonzero(which)]
    start_rows[which] = end
    return finished
