"""Episodes that are not in the archive yet: those that run, and finished ones until they were written.

Steps of several environments lie side by side in a ring, which is journalled like that of any storage, so that whatever
a killed process had committed of them is there again. The ring grows with the longest episode; rows of which everything
is in the archive are dropped, and the journal's files go with them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.episode_batch import Recording
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.write_ahead_log import Journal, Position
from storages.transition import DONE, Sample

State = Callable[[], dict[str, Any]]
_UNKNOWN = -1
_SEGMENT_BYTES = 4 << 20
"""Of the journal's files: what they hold is soon in the archive."""


class Finished(NamedTuple):
    """An episode that came to an end, was broken off, or is so long that it is kept in pieces, of which this is one."""

    env: int
    first: int
    """Number of its first row."""
    end: int
    """Number after its last."""
    shown: int
    """Number after the row that shows that it is finished: its last, or the one after that where it was broken off."""


class Running:
    """Takes steps, and tells which episodes they finish.

    Args:
        directory: of the journal.
        owner: the storage's name, for errors.
        num_envs: environments in a step; the first sample says so where None.
        stacked_frames: as of a ring.
        allow_nonfinite: as of a ring.
        commit_every: as of a journal.
        durable: as of a journal.
        size: steps that there is room for at first.
    """

    def __init__(
        self,
        directory: Path,
        owner: str,
        num_envs: int | None,
        stacked_frames: int | Mapping[str, int],
        allow_nonfinite: bool,
        commit_every: int,
        durable: bool,
        size: int,
    ) -> None:
        self._arguments = (owner, num_envs, allow_nonfinite, True, stacked_frames)
        kept = Manifest.read(directory)
        self.ring = Ring(size if kept is None else kept.size, *self._arguments)
        self.journal = Journal(directory, owner, self.ring, commit_every, durable, _SEGMENT_BYTES)
        self.longest: int | None = None
        """Steps of the longest piece that an episode is kept in."""
        self._begun: NDArray[np.int64] = np.zeros(0, np.int64)
        self._too_long_at = 0
        """Number of steps before which no episode that runs can have become too long."""
        self._put_aside = _UNKNOWN
        """What had been put aside of the ring after the newest step."""

    def recover(self) -> dict[str, Any] | None:
        """Hold what the journal holds; returns what stands beside it, None where there is nothing."""
        return self.journal.recover(self.ring)

    def roll_back(self, position: Position) -> dict[str, Any] | None:
        """As :meth:`recover`, as of a commit; what was written later is dropped.

        Raises:
            OSError: not everything could be dropped.
        """
        state = self.journal.roll_back(self.ring, position, at_once=True)
        self._begun, self._too_long_at, self._put_aside = np.zeros(0, np.int64), 0, _UNKNOWN
        return state

    def go_on_from(self, marks: Sequence[int]) -> list[Finished]:
        """Say how many steps of each environment are kept elsewhere; returns which episodes are finished since."""
        self._begun, finished = finished_since(self.ring, marks, self.longest)
        return finished

    def insert(self, sample: Sample, state: State) -> list[Finished]:
        """Store a step; returns which episodes it shows to be finished, those first that ended first.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            PersistenceError: earlier steps could not be written; nothing of this one was stored.
        """
        ring = self.ring
        if ring.steps >= self.journal.due:
            self.journal.commit_soon(ring, state, None)
        if ring.live_steps == ring.size:
            self.make_room(2 * ring.size)
            ring = self.ring
        ring.insert(sample)
        if not len(self._begun):
            self._begun = np.full(ring.envs, ring.first)
        # Where nothing was put aside, no episode ended, and none was broken off: as a rule.
        put_aside = ring.columns.finals.next_number
        finished = self._shown() if put_aside != self._put_aside else []
        self._put_aside = put_aside
        return finished if self.longest is None else finished + self.cut()

    def _shown(self) -> list[Finished]:
        """Finish what the newest step shows to be finished."""
        ring, newest = self.ring, self.ring.steps - 1
        # Nobody said that these ended, but something else goes on now.
        broken_off = self._finish(ring.broken_after(newest - 1) & (self._begun < newest), newest)
        return broken_off + self._finish(ring.broken_after(newest), newest + 1)

    def cut(self) -> list[Finished]:
        """Finish what has become too long."""
        steps = self.ring.steps
        if self.longest is None or steps < self._too_long_at:
            return []
        finished = self._finish(steps - self._begun >= self.longest, steps)
        self._too_long_at = int(self._begun.min()) + self.longest
        return finished

    def forget_first_step(self) -> None:
        """Hold nothing, and know nothing of what steps look like; of steps, only the first may have been inserted."""
        allow_nonfinite = self.ring.allow_nonfinite
        self.ring = Ring(self.ring.size, *self._arguments)
        self.ring.allow_nonfinite = allow_nonfinite
        self._begun, self._put_aside = np.zeros(0, np.int64), _UNKNOWN

    def make_room(self, size: int) -> None:
        """Have room for so many steps, which must be no fewer than there are."""
        resized = Ring(size, *self._arguments)
        resized.prepare(self.ring.layout, self.ring.envs)
        resized.allow_nonfinite = self.ring.allow_nonfinite
        if self.ring.steps:
            resized.append_span(self.ring.snapshot(self.ring.needed))
        self.ring, self._put_aside = resized, _UNKNOWN

    def _finish(self, which: NDArray[np.bool_], end: int) -> list[Finished]:
        if not which.any():
            return []
        finished = [Finished(int(env), int(self._begun[env]), end, self.ring.steps) for env in np.flatnonzero(which)]
        self._begun[which] = end
        return finished

    def recording(self, finished: Finished) -> Recording:
        """A copy of a finished episode, whose rows must still be there."""
        return Recording.of(self.ring, finished.env, finished.first, finished.end)

    def release(self, unwritten: Sequence[Finished] = ()) -> None:
        """Forget all rows but those of episodes that run, and of these."""
        if len(self._begun):
            needed = min([int(self._begun.min()), *(finished.first for finished in unwritten)])
            # Of an episode that is kept in pieces, the first stack of frames reaches back to the piece before.
            deepest = max(self.ring.stacked.values(), default=1)
            if needed - deepest + 1 > self.ring.first:
                self.ring.drop_before(needed - deepest + 1)

    def reset(self) -> None:
        """Forget everything."""
        self.journal.wait()
        self.ring.reset()
        self.journal.changed()
        self._begun, self._too_long_at = np.full(len(self._begun), self.ring.steps), 0
        self._put_aside = _UNKNOWN

    @property
    def begun(self) -> NDArray[np.int64]:
        """(E,): the first row of what each environment is at; empty before the first step."""
        return self._begun


def marks_of(state: Mapping[str, Any], archive: Archive, journalled: Ring) -> list[int]:
    """Of each environment, how many of its journalled steps are in the archive, or gone.

    Raises:
        TypeError: the state is not one that a buffer of whole episodes wrote.
    """
    if not isinstance(state["live"], int):
        raise TypeError(f"the oldest transition is a number, got {state['live']!r}")
    envs, steps = journalled.envs, journalled.steps
    said, recorded = ([*marks, *[0] * envs][:envs] for marks in (state["marks"], archive.marks))
    return [min(max(one, two), steps) for one, two in zip(said, recorded, strict=True)]


def finished_since(
    ring: Ring, marks: Sequence[int], longest: int | None = None
) -> tuple[NDArray[np.int64], list[Finished]]:
    """The episodes that rows of a ring finish, as if these had been inserted one after the other.

    Args:
        ring: whose rows.
        marks: of each environment, how many of its steps are kept elsewhere.
        longest: steps of the longest piece that an episode is kept in; None for any.

    Returns:
        The first row, (E,), of what each environment is at, and the episodes, those first that ended first.
    """
    known = np.array(marks, np.int64)
    begun: NDArray[np.int64] = np.maximum(ring.first, known)
    for env in np.flatnonzero((known < ring.first) & ~ring.columns.data(DONE)[ring.first % ring.rows, :, 0]).tolist():
        # What is left of an episode that was forgotten, or lost.
        ends = np.flatnonzero(ring.broken()[:, env])
        begun[env] = ring.oldest + ends[0] + 1 if len(ends) else ring.steps
    broken, said = ring.broken(), ring.ended()
    found: list[tuple[int, int, Finished]] = []
    for env in range(ring.envs):
        for row in (np.flatnonzero(broken[:, env]) + ring.oldest).tolist():
            if row < begun[env]:
                continue
            # What was broken off shows with the next step, before what ends with that one.
            shown = (row, 1) if said[row - ring.oldest, env] else (row + 1, 0)
            found += _pieces(env, begun, row + 1, shown, longest)
        found += _pieces(env, begun, ring.steps, None, longest)
    return begun, [finished for *_, finished in sorted(found)]


def _pieces(
    env: int, begun: NDArray[np.int64], end: int, shown: tuple[int, int] | None, longest: int | None
) -> list[tuple[int, int, Finished]]:
    found = []
    while longest is not None and end - begun[env] >= longest + (shown is not None and shown[1] == 1):
        cut = int(begun[env]) + longest
        found.append((cut - 1, 2, Finished(env, int(begun[env]), cut, cut)))
        begun[env] = cut
    if shown is not None and begun[env] < end:
        found.append((*shown, Finished(env, int(begun[env]), int(end), shown[0] + 1)))
        begun[env] = end
    return found
