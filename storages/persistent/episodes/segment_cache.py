"""What of an archive is in memory: a ring of whole episodes, exchanged volume by volume where not all of it fits.

Where everything fits, a transition's number in the ring is its number in the archive. Where not, what is new comes into
memory at once, and volumes are brought back in passes: each pass brings every volume once, in an order drawn for it.
What comes in lets go of what came in first. So a volume stays for as many rows brought in as any other, and over whole
passes each transition is drawn as often as any other. A volume is due after as many draws as follow from its length;
it is read and decoded by a thread ahead of that, and waited for where it is not there yet: which rows a batch holds
follows from the seed, and not from how fast the disk is.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import RowSpan
from storages.persistent.episodes.episode_batch import Recording
from storages.persistent.episodes.volume import Volume

_AHEAD = 2
"""Volumes that are read before they are due."""


class Stretch(NamedTuple):
    """Transitions in the ring that are next to each other in the archive, too."""

    at: int
    """Number of the first in the ring."""
    first: int
    """Its number in the archive."""
    steps: int


class Loaded(NamedTuple):
    """A volume, or what of it is live, ready to be taken up."""

    first: int
    """Number of the first transition."""
    part: RowSpan
    episodes: int


class Shelf(Protocol):
    """Where volumes come from."""

    def firsts(self) -> list[int]:
        """The first transitions of all volumes, oldest first, those too that are not on disk yet."""

    def volume(self, first: int) -> tuple[Volume, Recording | None] | None:
        """The one that begins with a transition, and its episodes if they are in memory; None where there is none."""

    def read(self, volume: Volume) -> Recording:
        """A volume's episodes; for any thread."""


class Resident:
    """Keeps a ring filled.

    Args:
        ring: of one environment, whose columns are made.
        most_episodes: that it may hold at a time.
        draws_each: how often a transition is drawn, on average, while it is in memory.
        shelf: has the volumes.
    """

    def __init__(self, ring: Ring, most_episodes: int, draws_each: float, shelf: Shelf) -> None:
        self.ring, self.most_episodes, self._draws_each, self._shelf = ring, most_episodes, draws_each, shelf
        self.stretches: deque[Stretch] = deque()
        self._episodes: deque[int] = deque()
        """Of each stretch."""
        self._count = 0
        """Episodes in memory."""
        self.is_everything = True
        """Whether all that is live in the archive is in the ring."""
        self._order: deque[int] = deque()
        """First transitions of the volumes that this pass still has to bring."""
        self._ahead: deque[tuple[int, Future[Loaded]]] = deque()
        self._draws_left = 0.0
        """Until the next volume is due."""
        self._reader = ThreadPoolExecutor(1, "reader")

    # In

    def add(self, recording: Recording, first: int) -> tuple[list[Stretch], Stretch]:
        """Take up episodes whose first transition has this number; returns what left the ring, and what came."""
        return self._take(Loaded(first, recording.part(self.ring.layout, 0, 0), len(recording)))

    def _take(self, loaded: Loaded, at: int | None = None) -> tuple[list[Stretch], Stretch]:
        ring, count = self.ring, len(loaded.part)
        gone: list[Stretch] = []
        while self.stretches and (
            ring.live_steps + count > ring.size or self._count + loaded.episodes > self.most_episodes
        ):
            gone.append(self._drop_oldest())
            self.is_everything = False
        if at is None:
            at = ring.steps if self.stretches or not self.is_everything else loaded.first
        ring.append_span(loaded.part.numbered(at, ring.first if self.stretches else at))
        came = Stretch(at, loaded.first, count)
        self.stretches.append(came)
        self._episodes.append(loaded.episodes)
        self._count += loaded.episodes
        return gone, came

    def _drop_oldest(self) -> Stretch:
        oldest = self.stretches.popleft()
        self._count -= self._episodes.popleft()
        self.ring.drop_before(oldest.at + oldest.steps)
        return oldest

    def drop_before(self, first: int, episodes: int) -> list[Stretch]:
        """Let go of what the archive does not hold any more, if all that it holds is in memory; returns what left.

        Args:
            first: number of the oldest transition that it still holds.
            episodes: how many it let go of.
        """
        gone: list[Stretch] = []
        if not self.is_everything:
            return gone
        while self.stretches and self.stretches[0].first + self.stretches[0].steps <= first:
            episodes -= self._episodes[0]
            gone.append(self._drop_oldest())
        if self.stretches and (left := first - self.stretches[0].first) > 0:
            at, begin, count = self.stretches[0]
            gone.append(Stretch(at, begin, left))
            self.stretches[0] = Stretch(at + left, first, count - left)
            self._episodes[0] -= episodes
            self._count -= episodes
            self.ring.drop_before(at + left)
        return gone

    # Exchange

    def drawn(self, draws: int) -> None:
        """Count draws."""
        if not self.is_everything:
            self._draws_left -= draws

    def due(self) -> bool:
        """Whether a volume is to be brought into memory before the next draw."""
        return not self.is_everything and self._draws_left <= 0

    def bring(self, live: int, generator: np.random.Generator) -> tuple[list[Stretch], Stretch] | None:
        """Bring the next volume into memory, and have those after it read.

        Args:
            live: number of the oldest live transition.
            generator: draws the order of a pass.

        Returns:
            What left the ring, and what came; None where nothing is left to bring.

        Raises:
            DamageError: it cannot be read; the next call goes on with the next one.
        """
        while True:
            self._read_ahead(live, generator)
            if not self._ahead:
                return None
            first, future = self._ahead.popleft()
            found = self._shelf.volume(first)
            if found is not None and found[0].end > live:
                loaded = future.result()
                self._draws_left += self._draws_each * len(loaded.part)
                changed = self._take(loaded)
                self._read_ahead(live, generator)
                return changed

    def _read_ahead(self, live: int, generator: np.random.Generator) -> None:
        while len(self._ahead) < _AHEAD:
            if not self._order:
                # What came in last comes back last.
                newest = {stretch.first for stretch in self.stretches}
                shuffled = generator.permutation(np.array(self._shelf.firsts(), np.int64)).tolist()
                self._order.extend(sorted(shuffled, key=lambda first: first in newest))
            if not self._order:
                return
            first = self._order.popleft()
            found = self._shelf.volume(first)
            if found is not None:
                self._ahead.append((first, self._reader.submit(self._load, *found, live)))

    def _load(self, volume: Volume, recording: Recording | None, live: int) -> Loaded:
        first, recording = (self._shelf.read(volume) if recording is None else recording).since(volume.first, live)
        return Loaded(first, recording.part(self.ring.layout, 0, 0), len(recording))

    # Filled at once

    def fill(self, live: int) -> None:
        """Hold all that there is; ``live`` is the number of the oldest live transition."""
        reading: deque[Future[Loaded]] = deque()
        for first in self._shelf.firsts():
            found = self._shelf.volume(first)
            if found is not None and found[0].end > live:
                reading.append(self._reader.submit(self._load, *found, live))
            if len(reading) > _AHEAD:
                self._take(reading.popleft().result())
        for future in reading:
            self._take(future.result())

    def fill_in_part(self, live: int, generator: np.random.Generator) -> None:
        """Hold as much as fits; the rest comes as it is due."""
        self.is_everything = False
        while True:
            changed = self.bring(live, generator)
            if changed is None or changed[0]:
                return

    def add_volume(self, volume: Volume, live: int) -> tuple[list[Stretch], Stretch]:
        """Take up a volume at once."""
        return self._take(self._load(volume, None, live))

    # To and from disk

    def state(self) -> dict[str, Any]:
        """Which transitions are in memory where, and what comes next, as plain data."""
        return {
            "stretches": [list(stretch) for stretch in self.stretches],
            "everything": self.is_everything,
            "order": [first for first, _ in self._ahead] + list(self._order),
            "draws_left": self._draws_left,
        }

    def restore(self, state: Mapping[str, Any], recording_of: Callable[[int, int], Recording]) -> None:
        """Be as of a state; ``recording_of`` gets episodes by their first transition and how many they have."""
        for at, first, count in state["stretches"]:
            recording = recording_of(first, count)
            if not self.stretches:
                self.ring.steps = self.ring.first = at
            self._take(Loaded(first, recording.part(self.ring.layout, 0, 0), len(recording)), at)
        self._order = deque(state["order"])
        self.is_everything, self._draws_left = state["everything"], state["draws_left"]

    def forget(self, at: int) -> None:
        """Hold nothing; what comes is numbered from ``at`` on."""
        self._drop_what_is_read_ahead()
        self.stretches.clear()
        self._episodes.clear()
        self._count, self.is_everything, self._draws_left = 0, True, 0.0
        if self.ring.live_steps:
            # It touches all of the memory.
            self.ring.reset()
        self.ring.steps = self.ring.first = at

    def _drop_what_is_read_ahead(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._order.clear()

    def merged(self) -> list[Stretch]:
        """What is in memory, in as few stretches as possible."""
        merged: list[Stretch] = []
        for at, first, count in self.stretches:
            if merged and merged[-1].first + merged[-1].steps == first:
                merged[-1] = Stretch(merged[-1].at, merged[-1].first, merged[-1].steps + count)
            else:
                merged.append(Stretch(at, first, count))
        return merged

    @property
    def nbytes(self) -> int:
        """Bytes of memory of what is read ahead."""
        done = (future for _, future in self._ahead if future.done() and not future.cancelled())
        return sum(
            piece.nbytes
            for future in done
            if future.exception() is None
            for pieces in future.result().part.arrays.values()
            for piece in pieces
        )

    def close(self) -> None:
        """Let go of the thread."""
        self._drop_what_is_read_ahead()
        self._reader.shutdown()
