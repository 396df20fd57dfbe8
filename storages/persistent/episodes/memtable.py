"""Memtable: the steps of episodes that are in no segment yet, with a write-ahead log.

The steps of all environments are in a ring, which has the same write-ahead log as that of any replay storage. The ring
grows with the longest episode. Rows that are in segments on disk are dropped, and with them log files.
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
    """Rows of a finished episode in the memtable, or of a piece of a very long one.

    An episode is finished if it terminated, was truncated, or was broken off: its environment began another one.
    """

    env: int
    first: int
    """Number of its first row."""
    end: int
    """Number after its last row."""
    visible_at: int
    """Number after the row that shows that it is finished: its last row, or the next one if it was broken off."""


class Memtable:
    """Steps of unfinished episodes, in a ring with a write-ahead log.

    Args:
        ring: the ring, still empty.
        wal: write-ahead log of the ring.
    """

    def __init__(self, ring: Ring, wal: WriteAheadLog) -> None:
        self.ring, self.wal = ring, wal
        self.longest: int | None = None
        """Most steps of an episode; a longer one is stored in pieces. None before the memory plan is known."""
        self.start_rows: NDArray[np.int64] = np.zeros(0, np.int64)
        """(E,): first row of each unfinished episode; empty before the first step."""
        self.newest = 0
        """Number of newest steps that stay, even if their episodes are in segments."""
        self._too_long_at = 0
        """Number of steps before which no running episode can reach :attr:`longest`."""
        self._put_aside = _UNKNOWN
        """Number of final observations that the ring had stored after the newest step."""
        self._finished_at = 0
        """Number after the row that showed last that an episode is finished."""
        self._late: list[list[int]] = []
        """See :attr:`late`."""

    def roll_back(self, position: Position) -> dict[str, Any] | None:
        """Restore a commit and drop later ones; return the state besides the ring, None if there is none."""
        state = self.wal.roll_back(position, at_once=True)
        self.start_rows, self._too_long_at, self._put_aside = np.zeros(0, np.int64), 0, _UNKNOWN
        self._finished_at, self._late = 0, []
        return state

    @property
    def late(self) -> list[list[int]]:
        """Episodes that :meth:`end_episodes` finished after others that end with the same row, in this order.

        Number after the row, and environment. The rows alone do not show the order, by which episodes are numbered.
        """
        return [one for one in self._late if one[0] > self.ring.first]

    def resume_from(self, watermarks: Sequence[int], late: Sequence[Sequence[int]] = ()) -> list[EpisodeSpan]:
        """Resume after recovery: return the episodes finished after the watermarks, which segments do not hold.

        Args:
            watermarks: for each environment, the number of its steps that are in segments or were dropped.
            late: :attr:`late` as committed with the steps.
        """
        self._late = [list(one) for one in late]
        self.start_rows, finished = finished_since(self.ring, watermarks, self.longest, self._late)
        self._finished_at = finished[-1].visible_at if finished else 0
        return finished

    def insert(self, sample: Sample, state: State) -> list[EpisodeSpan]:
        """Store a step; return the episodes that it finishes, in the order of their ends.

        Raises:
            SampleError: the sample does not fit; none of it was stored.
            PersistenceError: earlier steps could not be written; none of this one was stored.
        """
        ring = self.ring
        if ring.steps >= self.wal.due:
            self.wal.commit_soon(state, None)
        if ring.live_steps == ring.size:
            self.make_room(2 * ring.size)
        ring.insert(sample)
        if not len(self.start_rows):
            self.start_rows = np.full(ring.envs, ring.first)
        # If the ring has no new final observation, no episode ended or was broken off.
        put_aside = ring.columns.finals.next_number
        finished: list[EpisodeSpan] = []
        if put_aside != self._put_aside:
            newest = ring.steps - 1
            before, now = ring.broken(newest - 1, newest + 1)
            finished = _episodes_ended_by(newest, before, now, self.start_rows)
        self._put_aside = put_aside
        if self.longest is not None and ring.steps >= self._too_long_at:
            finished += self._cut(self.longest)
        if finished:
            self._finished_at = ring.steps
        return finished

    def end_episodes(self, envs: NDArray[np.int64] | None) -> list[EpisodeSpan]:
        """End running episodes after the newest step, as truncated; return those that are finished by it.

        Args:
            envs: the environments; all if None.
        """
        ring = self.ring
        # A commit in progress may be reading the newest row.
        self.wal.wait()
        running = np.flatnonzero(self.start_rows < ring.steps)
        which = np.zeros(len(self.start_rows), np.bool_)
        which[ring.interrupt(running if envs is None else np.intersect1d(running, envs), truncate=True)] = True
        # Not truncated in the other environments, where the newest transition is in a piece that was handed on before.
        ring.interrupt(envs)
        self._put_aside = ring.columns.finals.next_number
        finished = _finish(which, ring.steps, ring.steps, self.start_rows)
        if self._finished_at == ring.steps:
            self._late = self.late + [[one.visible_at, one.env] for one in finished]
        elif finished:
            self._finished_at = ring.steps
        return finished

    def _cut(self, longest: int) -> list[EpisodeSpan]:
        """Finish and return the pieces of running episodes that have ``longest`` steps."""
        steps = self.ring.steps
        finished = _finish(steps - self.start_rows >= longest, steps, steps, self.start_rows)
        self._too_long_at = int(self.start_rows.min()) + longest
        return finished

    def make_room(self, size: int) -> None:
        """Resize the ring to ``size`` steps, at least as many as are live."""
        self.ring.resize(size)
        self._put_aside = _UNKNOWN

    def batch(self, finished: EpisodeSpan) -> EpisodeBatch:
        """Return a copy of a finished episode, whose rows must not have been released."""
        return EpisodeBatch.of(self.ring, finished.env, finished.first, finished.end)

    def release(self, unwritten: Sequence[EpisodeSpan] = ()) -> None:
        """Drop the rows before all running episodes, ``unwritten`` ones and the newest steps that stay."""
        if len(self.start_rows):
            kept = (self.ring.steps - self.newest, *(finished.first for finished in unwritten))
            needed = min(int(self.start_rows.min()), *kept)
            # If an episode is stored in pieces, the first frame stack of a piece has frames of the previous one.
            deepest = max(self.ring.stacked.values(), default=1)
            if needed - deepest + 1 > self.ring.first:
                self.ring.drop_before(needed - deepest + 1)

    def reset(self) -> None:
        """Drop all rows."""
        self.wal.wait()
        self.ring.reset()
        self.wal.changed()
        self.start_rows, self._too_long_at = np.full(len(self.start_rows), self.ring.steps), 0
        self._put_aside, self._late = _UNKNOWN, []


def watermarks_of(state: Mapping[str, Any], archive: SegmentStore, logged: Ring) -> list[int]:
    """Return, for each environment, the number of logged steps that are in segments or were dropped.

    Raises:
        TypeError: the state was not written by a storage of episodes.
    """
    if not isinstance(state["live"], int):
        raise TypeError(f"the oldest transition must be a number, got {state['live']!r}")
    envs, steps = logged.envs, logged.steps
    said, recorded = ([*watermarks, *[0] * envs][:envs] for watermarks in (state["watermarks"], archive.watermarks))
    return [min(max(one, two), steps) for one, two in zip(said, recorded, strict=True)]


def late_of(state: Mapping[str, Any]) -> list[list[int]]:
    """Return :attr:`Memtable.late` as committed with the steps.

    Raises:
        TypeError: the state was not written by a storage of episodes.
    """
    late: list[list[int]] = state["late"]
    if not all(isinstance(number, int) for row, env in late for number in (row, env)):
        raise TypeError(f"the rows and environments of episodes must be numbers, got {late!r}")
    return late


def finished_since(
    ring: Ring, watermarks: Sequence[int], longest: int | None = None, late: Sequence[Sequence[int]] = ()
) -> tuple[NDArray[np.int64], list[EpisodeSpan]]:
    """Return the finished episodes in a ring, as if its rows had been inserted one after the other.

    Args:
        ring: the ring.
        watermarks: for each environment, the number of its steps that are in segments or were dropped.
        longest: most steps of an episode; a longer one is returned in pieces. None for no limit.
        late: as :attr:`Memtable.late`.

    Returns:
        The first row of each running episode, (E,), and the finished episodes in the order of their ends.
    """
    known = np.array(watermarks, np.int64)
    begun: NDArray[np.int64] = np.maximum(ring.first, known)
    for env in np.flatnonzero((known < ring.first) & ~ring.columns.data(DONE)[ring.first % ring.rows, :, 0]).tolist():
        # Skip the rest of an episode whose first rows were dropped or lost.
        ends = np.flatnonzero(ring.broken()[:, env])
        begun[env] = ring.oldest + ends[0] + 1 if len(ends) else ring.steps
    broken = ring.broken()
    ended: NDArray[np.bool_] = broken & ring.ended()
    shows = np.asarray(broken.any(axis=1))
    found: list[EpisodeSpan] = []
    ended_late: dict[int, list[int]] = {}
    for after, env in late:
        if not 0 <= env < ring.envs:
            raise IndexError(f"there is no environment {env}")
        ended_late.setdefault(after, []).append(env)
    for place, row in enumerate(range(ring.oldest, ring.steps)):
        before = max(0, place - 1)
        then = ended_late.get(row + 1, [])
        if shows[place] or shows[before]:
            at_once = ended[place].copy()
            at_once[then] = False
            found += _episodes_ended_by(row, broken[before] & (place > 0), at_once, begun)
        if longest is not None and row + 1 - begun.min() >= longest:
            found += _finish(row + 1 - begun >= longest, row + 1, row + 1, begun)
        for env in then:
            found += _finish((np.arange(ring.envs) == env) & ended[place] & (begun <= row), row + 1, row + 1, begun)
    return begun, found


def _episodes_ended_by(
    row: int, broken_before: NDArray[np.bool_], ended: NDArray[np.bool_], start_rows: NDArray[np.int64]
) -> list[EpisodeSpan]:
    """Return the episodes that a row shows to be finished.

    Args:
        row: number of the row.
        broken_before: (E,), whether it does not continue the row before.
        ended: (E,), whether an episode terminates or is truncated with it.
        start_rows: (E,), first rows of the running episodes, updated in place.
    """
    # These episodes neither terminated nor were truncated, but another one has begun.
    broken_off = _finish(broken_before & (start_rows < row), row, row + 1, start_rows)
    return broken_off + _finish(ended & (start_rows <= row), row + 1, row + 1, start_rows)


def _finish(which: NDArray[np.bool_], end: int, visible_at: int, start_rows: NDArray[np.int64]) -> list[EpisodeSpan]:
    finished = [EpisodeSpan(int(env), int(start_rows[env]), end, visible_at) for env in np.flatnonzero(which)]
    start_rows[which] = end
    return finished
