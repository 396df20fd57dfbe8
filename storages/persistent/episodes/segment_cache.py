"""Segment cache: a ring of the episodes in memory, replaced segment by segment if not all fit.

If all episodes fit, a transition has the same number in the ring as in the segments. Otherwise, new episodes enter the
ring at once, and segments are loaded in passes: each pass loads every segment once, in random order, and evicts the
oldest spans of the ring (FIFO). Every segment thus stays in memory while equally many rows are loaded, and over whole
passes all transitions are drawn equally often. The next segment is due after a number of draws that is proportional to
the length of the last one. A background thread reads it ahead, and a draw waits for it, so that the content of batches
depends on the seed only, and not on the speed of the disk.
"""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import RowSpan
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.core.sampling.prioritized_sampler import PrioritizedSampler
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.flush_queue import FlushQueue, LiveRange
from storages.persistent.episodes.memory_plan import MemoryPlan
from storages.persistent.episodes.segment import Segment

DRAWS_EACH = 8.0
"""Mean number of draws of each transition while it is in memory."""
_AHEAD = 2
"""Segments that are read ahead."""


class CachedSpan(NamedTuple):
    """Transitions in memory that are consecutive both in the ring and in the segments."""

    at: int
    """Number of the first transition in the ring."""
    first: int
    """Number of the first transition in the segments."""
    steps: int
    episodes: int


class LoadedSegment(NamedTuple):
    """The live part of a segment, decoded to rows of the ring."""

    first: int
    """Number of the first transition."""
    part: RowSpan
    episodes: int


class SegmentCache(RingObserver):
    """Keeps a ring filled with segments, and updates the episode index and the priorities of the storage.

    Args:
        ring: a ring of one environment, in which the episodes of all environments lie one after the other.
        sampler: the sampler, which has the priorities, if there are any.
        tracker: index of the ring's episodes, if there is one.
    """

    def __init__(self, ring: Ring, sampler: PrioritizedSampler, tracker: EpisodeTracker | None) -> None:
        self._ring, self._sampler, self._tracker = ring, sampler, tracker
        self._most_episodes = 0
        self._source: FlushQueue | None = None
        self.cold = ColdPriorities()
        """Errors of transitions that are not in memory, and of those in memory as they were last collected."""
        self.spans: deque[CachedSpan] = deque()
        """The spans in memory, oldest first."""
        self._episodes = 0
        """Number of episodes in memory."""
        self.holds_all = True
        """Whether all live episodes are in the ring."""
        self._order: deque[int] = deque()
        """First transitions of the segments that the present pass still has to load."""
        self._ahead: deque[tuple[int, Future[LoadedSegment]]] = deque()
        """Segments that are being read ahead, by their first transitions."""
        self._draws_left = 0.0
        """Draws until the next segment is due."""
        self._reader = ThreadPoolExecutor(1, "reader")

    def begin(self, source: FlushQueue, plan: MemoryPlan) -> None:
        """Allocate the columns of the ring, with the size of a memory plan.

        Raises:
            PersistenceError: the segments have other observations than the ring was made for.
        """
        source.archive.manifest.make_columns(self._ring, 1, source.archive.directory, plan.steps)
        self._source, self._most_episodes = source, plan.episodes
        if self._tracker is not None:
            self._tracker.build()

    # Insertion

    def add(self, batch: EpisodeBatch, first: int) -> None:
        """Add new episodes, whose first transition has the number ``first``."""
        self._take(self._loaded(batch, first))

    def add_segment(self, segment: Segment, live: int) -> None:
        """Load a segment now."""
        self._take(self._load(segment, None, live))

    def _take(self, loaded: LoadedSegment, at: int | None = None) -> None:
        """Append episodes to the ring, and evict the oldest spans if there is no room."""
        ring, steps = self._ring, len(loaded.part)
        gone: list[CachedSpan] = []
        while self.spans and (
            ring.live_steps + steps > ring.size or self._episodes + loaded.episodes > self._most_episodes
        ):
            gone.append(self.spans.popleft())
            self._episodes -= gone[-1].episodes
            ring.drop_before(gone[-1].at + gone[-1].steps)
            self.holds_all = False
        if at is None:
            at = ring.steps if self.spans or not self.holds_all else loaded.first
        ring.append_span(loaded.part.numbered(at, ring.first if self.spans else at))
        self.spans.append(CachedSpan(at, loaded.first, steps, loaded.episodes))
        self._episodes += loaded.episodes
        self._follow(gone, self.spans[-1])

    def drop_before(self, first: int, episodes: int) -> None:
        """Drop transitions that are not live any more.

        Args:
            first: number of the oldest live transition.
            episodes: number of episodes that were dropped.
        """
        gone: list[CachedSpan] = []
        # If not all episodes are in memory, dropped ones stay until they are evicted.
        while self.holds_all and self.spans and self.spans[0].first < first:
            at, begin, steps, count = self.spans.popleft()
            left = begin + steps - first
            if left > 0:
                self.spans.appendleft(CachedSpan(at + steps - left, first, left, count - episodes))
                steps, count = steps - left, episodes
            episodes -= count
            self._episodes -= count
            gone.append(CachedSpan(at, begin, steps, count))
            self._ring.drop_before(at + steps)
        self._follow(gone, None)
        self.cold.drop_before(first)

    def _follow(self, gone: list[CachedSpan], came: CachedSpan | None) -> None:
        """Update the episode index and the priorities after spans left the ring, and one was added."""
        if self._tracker is not None:
            self._tracker.replaced(self._ring.steps if came is None else came.at)
        priorities = self._sampler.priorities
        if priorities is None:
            return
        if not self.holds_all:
            self._collect_errors(gone)
        errors = np.zeros(0, np.float32)
        if came is not None:
            errors = self.cold.get(came.first, came.steps)
            errors[np.isnan(errors)] = priorities.initial_error
            # Some were evicted with the initial error of before the first update, which may be too large now.
            errors = priorities.bounded(errors)
        left = (gone[0].at, gone[-1].at + gone[-1].steps) if gone else (0, 0)
        priorities.replace(left, 0 if came is None else came.at, errors)

    # Replacement

    def drawn(self, draws: int) -> None:
        """Count transitions that were drawn."""
        self._draws_left -= draws

    @property
    def needs_refill(self) -> bool:
        """Whether a segment must be loaded before the next draw."""
        return not self.holds_all and self._draws_left <= 0

    def load_next(self, live: int, generator: np.random.Generator | None) -> bool:
        """Load the next segment, and start to read ahead those after it.

        Args:
            live: number of the oldest live transition.
            generator: draws the order of the next pass; None for no further pass.

        Returns:
            Whether there was a segment to load.

        Raises:
            DamageError: the segment is damaged; the next call continues with the next one.
            DroppedError: another process has deleted the segment.
        """
        # So that the errors of evicted transitions are up to date.
        self._sampler.settle()
        while True:
            self._read_ahead(live, generator)
            if not self._ahead:
                return False
            first, future = self._ahead.popleft()
            found = self._segments.segment(first)
            if found is not None and found[0].end > live:
                loaded = future.result()
                self._draws_left += DRAWS_EACH * len(loaded.part)
                self._take(loaded)
                self._read_ahead(live, generator)
                return True

    def _read_ahead(self, live: int, generator: np.random.Generator | None) -> None:
        """Start to read the next segments; the generator is as in :meth:`load_next`."""
        while len(self._ahead) < _AHEAD:
            if not self._order and generator is not None:
                # Segments that are still in memory are loaded last.
                newest = {span.first for span in self.spans}
                shuffled = generator.permutation(np.array(self._segments.firsts(), np.int64)).tolist()
                self._order.extend(sorted(shuffled, key=lambda first: first in newest))
            if not self._order:
                return
            first = self._order.popleft()
            found = self._segments.segment(first)
            if found is not None:
                self._ahead.append((first, self._reader.submit(self._load, *found, live)))

    def _load(self, segment: Segment, batch: EpisodeBatch | None, live: int) -> LoadedSegment:
        first, batch = (self._segments.read(segment) if batch is None else batch).since(segment.first, live)
        return self._loaded(batch, first)

    def _loaded(self, batch: EpisodeBatch, first: int) -> LoadedSegment:
        return LoadedSegment(first, batch.part(self._ring.layout), len(batch))

    # Initial content

    def hold(self, live_range: LiveRange, memory: Mapping[str, Any] | None, generator: np.random.Generator) -> None:
        """Load the live episodes, or as many as fit.

        Args:
            live_range: the live episodes.
            memory: the :meth:`state` to restore if not all fit; if None or empty, a new pass is started.
            generator: draws the order of a pass.
        """
        self._sampler.forget()
        self.forget(live_range.live)
        if self._tracker is not None:
            self._tracker.build()
        if live_range.stored <= self._ring.size and live_range.episodes <= self._most_episodes:
            self._order.extend(self._segments.firsts())
            while self.load_next(live_range.live, None):
                pass
            self._draws_left = 0.0
        elif memory is not None and memory["spans"]:
            self._restore(memory)
        else:
            self.holds_all, loaded = False, 0
            # Until a segment replaces another one.
            while self.load_next(live_range.live, generator) and len(self.spans) > loaded:
                loaded = len(self.spans)

    def _restore(self, state: Mapping[str, Any]) -> None:
        for at, first, count in state["spans"]:
            if not self.spans:
                self._ring.steps = self._ring.first = at
            self._take(self._loaded(self._segments.batch_of(first, count), first), at)
        self._order = deque(state["order"])
        self.holds_all, self._draws_left = state["everything"], state["draws_left"]

    def state(self) -> dict[str, Any]:
        """Return the spans in memory and the order of the next segments, as plain data."""
        return {
            "spans": [list(span[:3]) for span in self.spans],
            "everything": self.holds_all,
            "order": [first for first, _ in self._ahead] + list(self._order),
            "draws_left": self._draws_left,
        }

    def forget(self, at: int) -> None:
        """Evict everything; the next rows are numbered from ``at`` on."""
        self._drop_read_ahead()
        self.spans.clear()
        self._episodes, self.holds_all, self._draws_left = 0, True, 0.0
        if self._ring.live_steps:
            # Not for an empty ring: reset() writes to all of its memory.
            self._ring.reset()
        self._ring.steps = self._ring.first = at

    def reset(self, at: int) -> None:
        """Evict everything, and reset the priorities."""
        self.forget(at)
        self._follow([], None)
        if self._sampler.priorities is not None:
            self._sampler.priorities.reset()

    def _drop_read_ahead(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._order.clear()

    # Errors

    def collect_errors(self) -> ColdPriorities | None:
        """Copy the errors of transitions in memory to the cold priorities; return these, None without priorities."""
        self._sampler.settle()
        if self._sampler.priorities is None:
            return None
        self._collect_errors(self._merged())
        return self.cold

    def _collect_errors(self, spans: list[CachedSpan]) -> None:
        priorities = self._sampler.priorities
        if priorities is not None:
            for at, first, steps, _ in spans:
                self.cold.put(first, priorities.errors_of(at, at + steps))

    def known_errors(self) -> Any:
        """Return the last collected errors of the transitions in memory (N,), float32; NaN where none is known."""
        known = [self.cold.get(first, steps) for _, first, steps, _ in self._merged()]
        return np.concatenate(known) if known else np.zeros(0, np.float32)

    def _merged(self) -> list[CachedSpan]:
        """Return the spans in memory, with adjacent ones joined."""
        merged: list[CachedSpan] = []
        for span in self.spans:
            if merged and merged[-1].first + merged[-1].steps == span.first:
                last = merged.pop()
                span = last._replace(steps=last.steps + span.steps, episodes=last.episodes + span.episodes)
            merged.append(span)
        return merged

    @property
    def nbytes(self) -> int:
        """Bytes of memory of cold priorities and of segments that were read ahead."""
        done = (future for _, future in self._ahead if future.done() and not future.cancelled())
        return self.cold.nbytes + sum(
            piece.nbytes
            for future in done
            if future.exception() is None
            for pieces in future.result().part.arrays.values()
            for piece in pieces
        )

    def close(self) -> None:
        """Stop the background thread."""
        self._drop_read_ahead()
        self._reader.shutdown()

    @property
    def _segments(self) -> FlushQueue:
        assert self._source is not None
        return self._source
