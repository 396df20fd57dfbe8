"""Recurrent states that updates have replaced in a ring since they were last written to disk."""

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ArrayKey, Fragments
from storages.persistent.log.records import Record
from storages.persistent.replay.snapshot_records import NEWER_STATES, STATE_OFFSETS, replaced_in
from storages.transition import RHS


class ReplacedStates:
    """The steps on disk whose recurrent states RHS are newer in memory.

    An update replaces as many states as its batch has steps, which is several times what is inserted between two
    updates. They are therefore not written with every commit, but with those of checkpoints, once each.

    Args:
        ring: the ring of the transitions.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._is_newer: NDArray[np.bool_] | None = None
        """(rows * E,), by slot of the transition; None before the first replacement."""

    @property
    def any_so_far(self) -> bool:
        """Whether any state was ever replaced."""
        return self._is_newer is not None

    def add(self, transitions: NDArray[np.int64]) -> None:
        """Note that the states of live transitions (N,) were replaced."""
        if self._is_newer is None:
            self._is_newer = np.zeros(self._ring.rows * self._ring.envs, np.bool_)
        self._is_newer[transitions % len(self._is_newer)] = True

    def before(self, step: int) -> NDArray[np.int64]:
        """Return the numbers (N,) of live transitions before a step whose states are newer, in increasing order."""
        if self._is_newer is None:
            return _NONE
        start, slots = self._ring.start, len(self._is_newer)
        places = np.flatnonzero(self._is_newer)
        numbers = np.sort(start + (places - start) % slots)
        return numbers[numbers < step * self._ring.envs]

    def arrays(self, transitions: NDArray[np.int64]) -> dict[ArrayKey, Fragments]:
        """Return the arrays of a commit that holds the states of live transitions (N,); none where there are none."""
        ring = self._ring
        if not len(transitions):
            return {}
        states = ring.columns[(RHS,)].data[transitions // ring.envs % ring.rows, transitions % ring.envs]
        offsets = (transitions - ring.start).astype(np.uint32)
        return {NEWER_STATES: (states,), STATE_OFFSETS: (offsets,)}

    def written(self, record: Record) -> None:
        """Note that the states of a commit are on disk: those of its rows, and those that it holds by themselves."""
        if self._is_newer is None:
            return
        if record.facts["begins"]:
            self._is_newer[...] = False
            return
        envs, slots = self._ring.envs, len(self._is_newer)
        self._is_newer[np.arange(record.first * envs, record.steps * envs) % slots] = False
        self._is_newer[replaced_in(record) % slots] = False

    def forget(self) -> None:
        """Note that the ring was restored from disk."""
        self._is_newer = None

    def resized(self) -> None:
        """Follow a change of the ring's capacity, with its newest steps stored."""
        if self._is_newer is not None:
            newer = self.before(self._ring.steps)
            self._is_newer = None
            self.add(newer)


_NONE = np.empty(0, np.int64)
