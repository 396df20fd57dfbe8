"""Segment cache: a ring of the episodes in memory, exchanged segment by segment if not all fit.

Where everything fits, a transition's number in the ring is its number in the segments. Where not, new episodes come
into memory at once, and segments are loaded in passes: each pass loads every segment once, in an order drawn for it,
and evicts the oldest spans of the ring. So a segment stays for as many loaded rows as any other, and over whole passes
each transition is drawn as often as any other. A segment is due after as many draws as follow from its length; a thread
reads and decodes it before that, and a draw waits for it: which rows a batch holds follows from the seed, and not from
the speed of the disk.
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
"""How often a transition is drawn, on average, while it is in memory."""
_AHEAD = 2
"""Segments that are read before they are due."""


class CachedSpan(NamedTuple):
    """Transitions that are consecutive in the ring and in the segments."""

    at: int
    """Number of the first in the ring."""
    first: int
    """Its number in the segments."""
    steps: int
    episodes: int


class LoadedSegment(NamedTuple):
    """The live part of a segment, ready to be put into the ring."""

    first: int
    """Number of the first transition."""
    part: RowSpan
    episodes: int


class SegmentCache(RingObserver):
    """Keeps a ring filled from segments; the index of episodes and the priorities of a storage follow.

    Args:
        ring: of one environment: episodes lie in it one after the other, whichever environment they are of.
        sampler: has the priorities, if there are any.
        tracker: index of the ring's episodes, if there is one.
    """

    def __init__(self, ring: Ring, sampler: PrioritizedSampler, tracker: EpisodeTracker | None) -> None:
        self._ring, self._sampler, self._tracker = ring, sampler, tracker
        self._most_episodes = 0
        self._source: FlushQueue | None = None
        self.cold = ColdPriorities()
        """Errors of transitions that are not in memory, or were not when they were last collected."""
        self.spans: deque[CachedSpan] = deque()
        self._episodes = 0
        """In memory."""
        self.holds_all = True
        """Whether all live episodes are in the ring."""
        self._order: deque[int] = deque()
        """First transitions of the segments that this pass still has to load."""
        self._ahead: deque[tuple[int, Future[LoadedSegment]]] = deque()
        self._draws_left = 0.0
        """Until the next segment is due."""
        self._reader = ThreadPoolExecutor(1, "reader")

    def begin(self, source: FlushQueue, plan: MemoryPlan) -> None:
        """Make the columns of the ring for the segments of a source, as many as a plan says.

        Raises:
            PersistenceError: they are of other observations than the ring is made for.
        """
        source.archive.manifest.make_columns(self._ring, 1, source.archive.directory, plan.steps)
        self._source, self._most_episodes = source, plan.episodes
        if self._tracker is not None:
            self._tracker.build()

    # In

    def add(self, batch: EpisodeBatch, first: int) -> None:
        """Add episodes whose first transition has this number."""
        self._take(self._loaded(batch, first))

    def add_segment(self, segment: Segment, live: int) -> None:
        """Load a segment now."""
        self._take(self._load(segment, None, live))

    def _take(self, loaded: LoadedSegment, at: int | None = None) -> None:
        """Append episodes to the ring, in the place of older ones if need be."""
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
        """Forget transitions that are not live any more.

        Args:
            first: number of the oldest live transition.
            episodes: how many episodes ceased to be live.
        """
        gone: list[CachedSpan] = []
        # Where not all is in memory, they are evicted in their turn.
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
        """Let the index of episodes and the priorities follow what left the ring, and what came into it."""
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
            # Some may have left memory before any error was known.
            errors = priorities.bounded(errors)
        left = (gone[0].at, gone[-1].at + gone[-1].steps) if gone else (0, 0)
        priorities.replace(left, 0 if came is None else came.at, errors)

    # Exchange

    def drawn(self, draws: int) -> None:
        """Count draws."""
        self._draws_left -= draws

    @property
    def needs_refill(self) -> bool:
        """Whether a segment is to be loaded before the next draw."""
        return not self.holds_all and self._draws_left <= 0

    def load_next(self, live: int, generator: np.random.Generator | None) -> bool:
        """Load the next segment, and read ahead those after it.

        Args:
            live: number of the oldest live transition.
            generator: draws the order of the next pass; None for no further pass.

        Returns:
            Whether there was one.

        Raises:
            DamageError: it cannot be read; the next call goes on with the next one.
            DroppedError: another process has dropped it.
        """
        # Errors of what leaves memory are kept.
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
        """Begin to read the segments that are next; the generator draws the order of the next pass, None of none."""
        while len(self._ahead) < _AHEAD:
            if not self._order and generator is not None:
                # What came in last comes back last.
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

    # Filled at once

    def hold(self, live_range: LiveRange, memory: Mapping[str, Any] | None, generator: np.random.Generator) -> None:
        """Load the live episodes, or as many as fit.

        Args:
            live_range: the live episodes.
            memory: :meth:`state` of what is to be in memory; the first segments of a pass if it is None or empty.
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
            # Until a segment takes the place of another.
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
        """Return which transitions are in memory where, and which segments are next, as plain data."""
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
            # It touches all of the memory.
            self._ring.reset()
        self._ring.steps = self._ring.first = at

    def reset(self, at: int) -> None:
        """Evict everything, and forget its priorities."""
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
        """Return the errors of all transitions, those in memory included; None without priorities."""
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
        """(transitions in memory,) float32: their errors as they were last collected, NaN where none is known."""
        known = [self.cold.get(first, steps) for _, first, steps, _ in self._merged()]
        return np.concatenate(known) if known else np.zeros(0, np.float32)

    def _merged(self) -> list[CachedSpan]:
        """Return what is in memory, in as few spans as possible."""
        merged: list[CachedSpan] = []
        for span in self.spans:
            if merged and merged[-1].first + merged[-1].steps == span.first:
                last = merged.pop()
                span = last._replace(steps=last.steps + span.steps, episodes=last.episodes + span.episodes)
            merged.append(span)
        return merged

    @property
    def nbytes(self) -> int:
        """Bytes of memory of cold priorities, and of segments that were read ahead."""
        done = (future for _, future in self._ahead if future.done() and not future.cancelled())
        return self.cold.nbytes + sum(
            piece.nbytes
            for future in done
            if future.exception() is None
            for pieces in future.result().part.arrays.values()
            for piece in pieces
        )

    def close(self) -> None:
        """End the thread."""
        self._drop_read_ahead()
        self._reader.shutdown()

    @property
    def _segments(self) -> FlushQueue:
        assert self._source is not None
        return self._source
