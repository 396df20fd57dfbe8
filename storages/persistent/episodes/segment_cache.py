"""Segment cache: a ring of the episodes in memory, exchanged segment by segment if not all fit.

Where everything fits, a transition's number in the ring is its number in the archive. Where not, what is new comes into
memory at once, and segments are brought back in passes: each pass brings every segment once, in an order drawn for it.
What comes in lets go of what came in first. So a segment stays for as many rows brought in as any other, and over whole
passes each transition is drawn as often as any other. A segment is due after as many draws as follow from its length;
it is read and decoded by a thread ahead of that, and waited for where it is not there yet: which rows a batch holds
follows from the seed, and not from how fast the disk is.
"""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import RowSpan
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.segment import Segment

_AHEAD = 2
"""Segments that are read before they are due."""


class CachedSpan(NamedTuple):
    """Transitions in the ring that are next to each other in the archive, too."""

    at: int
    """Number of the first in the ring."""
    first: int
    """Its number in the archive."""
    steps: int


class LoadedSegment(NamedTuple):
    """The live part of a segment, ready to be put into the ring."""

    first: int
    """Number of the first transition."""
    part: RowSpan
    episodes: int


class SegmentSource(Protocol):
    """Source of segments."""

    def firsts(self) -> list[int]:
        """The first transitions of all segments, oldest first, those too that are not on disk yet."""

    def segment(self, first: int) -> tuple[Segment, EpisodeBatch | None] | None:
        """The one that begins with a transition, and its episodes if they are in memory; None where there is none."""

    def read(self, segment: Segment) -> EpisodeBatch:
        """A segment's episodes; for any thread."""

    def batch_of(self, first: int, count: int) -> EpisodeBatch:
        """Whole episodes of one segment by the numbers of their transitions."""


class SegmentCache:
    """Keeps a ring filled from segments.

    Args:
        ring: of one environment, whose columns are made.
        most_episodes: that it may hold at a time.
        draws_each: how often a transition is drawn, on average, while it is in memory.
        source: of the segments.
    """

    def __init__(self, ring: Ring, most_episodes: int, draws_each: float, source: SegmentSource) -> None:
        self.ring, self.most_episodes, self._draws_each, self._source = ring, most_episodes, draws_each, source
        self.spans: deque[CachedSpan] = deque()
        self._episodes: deque[int] = deque()
        """Of each span."""
        self._count = 0
        """Episodes in memory."""
        self.holds_all = True
        """Whether all that is live in the archive is in the ring."""
        self._order: deque[int] = deque()
        """First transitions of the segments that this pass still has to bring."""
        self._ahead: deque[tuple[int, Future[LoadedSegment]]] = deque()
        self._draws_left = 0.0
        """Until the next segment is due."""
        self._reader = ThreadPoolExecutor(1, "reader")

    # In

    def add(self, batch: EpisodeBatch, first: int) -> tuple[list[CachedSpan], CachedSpan]:
        """Add episodes whose first transition has this number; return what left the ring, and what came."""
        return self._take(LoadedSegment(first, batch.part(self.ring.layout, 0, 0), len(batch)))

    def _take(self, loaded: LoadedSegment, at: int | None = None) -> tuple[list[CachedSpan], CachedSpan]:
        ring, count = self.ring, len(loaded.part)
        gone: list[CachedSpan] = []
        while self.spans and (
            ring.live_steps + count > ring.size or self._count + loaded.episodes > self.most_episodes
        ):
            gone.append(self._drop_oldest())
            self.holds_all = False
        if at is None:
            at = ring.steps if self.spans or not self.holds_all else loaded.first
        ring.append_span(loaded.part.numbered(at, ring.first if self.spans else at))
        came = CachedSpan(at, loaded.first, count)
        self.spans.append(came)
        self._episodes.append(loaded.episodes)
        self._count += loaded.episodes
        return gone, came

    def _drop_oldest(self) -> CachedSpan:
        oldest = self.spans.popleft()
        self._count -= self._episodes.popleft()
        self.ring.drop_before(oldest.at + oldest.steps)
        return oldest

    def drop_before(self, first: int, episodes: int) -> list[CachedSpan]:
        """Evict transitions that are not live any more, if all live ones are in memory; return what left.

        Args:
            first: number of the oldest transition that it still holds.
            episodes: how many it let go of.
        """
        gone: list[CachedSpan] = []
        if not self.holds_all:
            return gone
        while self.spans and self.spans[0].first + self.spans[0].steps <= first:
            episodes -= self._episodes[0]
            gone.append(self._drop_oldest())
        if self.spans and (left := first - self.spans[0].first) > 0:
            at, begin, count = self.spans[0]
            gone.append(CachedSpan(at, begin, left))
            self.spans[0] = CachedSpan(at + left, first, count - left)
            self._episodes[0] -= episodes
            self._count -= episodes
            self.ring.drop_before(at + left)
        return gone

    # Exchange

    def drawn(self, draws: int) -> None:
        """Count draws."""
        if not self.holds_all:
            self._draws_left -= draws

    def needs_refill(self) -> bool:
        """Whether a segment is to be loaded before the next draw."""
        return not self.holds_all and self._draws_left <= 0

    def load_next(self, live: int, generator: np.random.Generator) -> tuple[list[CachedSpan], CachedSpan] | None:
        """Load the next segment, and read ahead those after it.

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
            found = self._source.segment(first)
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
                newest = {span.first for span in self.spans}
                shuffled = generator.permutation(np.array(self._source.firsts(), np.int64)).tolist()
                self._order.extend(sorted(shuffled, key=lambda first: first in newest))
            if not self._order:
                return
            first = self._order.popleft()
            found = self._source.segment(first)
            if found is not None:
                self._ahead.append((first, self._reader.submit(self._load, *found, live)))

    def _load(self, segment: Segment, batch: EpisodeBatch | None, live: int) -> LoadedSegment:
        first, batch = (self._source.read(segment) if batch is None else batch).since(segment.first, live)
        return LoadedSegment(first, batch.part(self.ring.layout, 0, 0), len(batch))

    # Filled at once

    def fill(self, live: int) -> None:
        """Hold all that there is; ``live`` is the number of the oldest live transition."""
        reading: deque[Future[LoadedSegment]] = deque()
        for first in self._source.firsts():
            found = self._source.segment(first)
            if found is not None and found[0].end > live:
                reading.append(self._reader.submit(self._load, *found, live))
            if len(reading) > _AHEAD:
                self._take(reading.popleft().result())
        for future in reading:
            self._take(future.result())

    def fill_in_part(self, live: int, generator: np.random.Generator) -> None:
        """Load as much as fits; the rest is loaded in passes."""
        self.holds_all = False
        while True:
            changed = self.load_next(live, generator)
            if changed is None or changed[0]:
                return

    def add_segment(self, segment: Segment, live: int) -> tuple[list[CachedSpan], CachedSpan]:
        """Load a segment now."""
        return self._take(self._load(segment, None, live))

    # To and from disk

    def state(self) -> dict[str, Any]:
        """Return which transitions are in memory where, and which segments are next, as plain data."""
        return {
            "spans": [list(span) for span in self.spans],
            "everything": self.holds_all,
            "order": [first for first, _ in self._ahead] + list(self._order),
            "draws_left": self._draws_left,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; the ring must be empty."""
        for at, first, count in state["spans"]:
            batch = self._source.batch_of(first, count)
            if not self.spans:
                self.ring.steps = self.ring.first = at
            self._take(LoadedSegment(first, batch.part(self.ring.layout, 0, 0), len(batch)), at)
        self._order = deque(state["order"])
        self.holds_all, self._draws_left = state["everything"], state["draws_left"]

    def forget(self, at: int) -> None:
        """Evict everything; the next rows are numbered from ``at`` on."""
        self._drop_what_is_read_ahead()
        self.spans.clear()
        self._episodes.clear()
        self._count, self.holds_all, self._draws_left = 0, True, 0.0
        if self.ring.live_steps:
            # It touches all of the memory.
            self.ring.reset()
        self.ring.steps = self.ring.first = at

    def _drop_what_is_read_ahead(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._order.clear()

    def merged(self) -> list[CachedSpan]:
        """Return what is in memory, in as few spans as possible."""
        merged: list[CachedSpan] = []
        for at, first, count in self.spans:
            if merged and merged[-1].first + merged[-1].steps == first:
                merged[-1] = CachedSpan(merged[-1].at, merged[-1].first, merged[-1].steps + count)
            else:
                merged.append(CachedSpan(at, first, count))
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
        """End the thread."""
        self._drop_what_is_read_ahead()
        self._reader.shutdown()
