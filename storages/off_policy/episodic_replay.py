"""Replay of as much of a directory of episodes as memory holds: what comes and goes, and what is known of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from storages.component.hyper_parameters import Count
from storages.core.parts import Rows, Window
from storages.core.ring.layout import text
from storages.core.sampling.prioritized import Priorities
from storages.core.windows.segments import SequenceWindow
from storages.errors import DroppedError, PersistenceError
from storages.off_policy.per_buffer import PERBuffer
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.episodes.episode_store import EpisodeStore
from storages.persistent.episodes.memory_plan import MemoryPlan
from storages.persistent.episodes.memtable import EpisodeSpan
from storages.persistent.episodes.segment_cache import CachedSpan, SegmentCache
from storages.transition import Batch
from storages.windows import Episodes, Sequences

_DRAWS_EACH = 8.0
"""How often a transition is drawn, on average, before another takes its place in memory."""


class EpisodicReplay(PERBuffer):
    """Draws from a ring of whole episodes, which are exchanged by the segment where not all of them fit.

    The ring is one of a single environment: episodes lie in it one after the other, whichever environment they are of.
    Priorities, errors and the index of episodes follow what comes and goes.
    """

    knows_newest_steps = False
    memory_bytes: int | None
    _directory: EpisodeStore
    """All episodes."""
    _segment_cache: SegmentCache | None = None
    """Which of them are in memory; None before it is known what a transition looks like."""
    _cold: ColdPriorities
    """Errors of transitions that are not in memory."""

    # Batches

    def newest_steps(self, steps: Count) -> Batch:
        """Refused: episodes that still run are not in the ring."""
        raise NotImplementedError(f"{type(self).__name__} cannot say which steps are the newest; ReplayBuffer can")

    def draw_rows(self, batch_size: int, update: int = 1, updates: int = 1) -> Rows:
        """Draw rows of what is in memory, after what is due was exchanged."""
        cache = self._segment_cache
        if cache is None or cache.holds_all:
            return super().draw_rows(batch_size, update, updates)
        while cache.needs_refill():
            # Errors of what leaves memory are kept.
            self._prioritized.settle()
            try:
                changed = cache.load_next(self._directory.live_range.live, self._generator)
            except DroppedError:
                self._take_up_new()
                continue
            if changed is None:
                break
            self._changed(*changed)
        rows = super().draw_rows(batch_size, update, updates)
        cache.drawn(self._steps_of(rows))
        return rows

    def _take_up_new(self) -> None:
        """Follow what another process has written and dropped."""
        cache = self._segment_cache
        assert cache is not None
        while (changes := self._directory.refresh()) is not None:
            new, gone = changes
            self._let_go_of(gone)
            live = self._directory.live_range.live
            try:
                for segment in new:
                    if segment.end > live:
                        self._changed(*cache.add_segment(segment, live))
            except DroppedError:
                continue
            return
        self._hold(None)

    def _steps_of(self, rows: Rows) -> int:
        """How many transitions a batch is made of."""
        if isinstance(self.sequences, Episodes):
            assert self._tracker is not None
            return int(self._tracker.starts.lengths(rows.transitions).sum())
        each = 1 if self.sequences is None else self.sequences.length
        return each * len(rows.transitions)

    def make_window(self) -> Window:
        """Make a window whose sequences begin anywhere, because every episode is whole."""
        if isinstance(self.sequences, Sequences):
            steps = self.make_steps()
            return SequenceWindow(self.sequences, steps, steps.reach(self._ring), only_whole=True)
        return super().make_window()

    # What comes and goes

    def _make(self, manifest: EpisodeManifest, plan: MemoryPlan) -> None:
        """Make the ring, and what fills it from the archive that a manifest tells of."""
        folder = self._directory.folder
        # The first of all, so that it can be tried again where it cannot be written.
        flush_queue = self._directory.begin_archive(manifest, plan)
        self._ring.resize(plan.steps)
        try:
            self._ring.prepare(manifest.layout, 1)
        except ValueError as error:
            raise PersistenceError(f"{folder} holds other observations: {error}") from None
        if self._ring.stacked != manifest.stacked:
            there, told = (
                {text(path): depth for path, depth in stacked.items()} or "none"
                for stacked in (manifest.stacked, self._ring.stacked)
            )
            raise PersistenceError(
                f"{folder} holds stacked frames: {there}; this storage is told of {told}; make it for the same "
                f"environments, or name another directory"
            )
        largest = max((segment.rows for segment in flush_queue.archive.segments), default=0)
        if (needed := plan.memory_for(largest, manifest)) > (self.memory_bytes or needed):
            raise ValueError(
                f"{type(self).__name__}: memory_bytes must be at least {needed} for the longest episodes in {folder}, "
                f"got {self.memory_bytes}"
            )
        self._segment_cache = SegmentCache(self._ring, plan.episodes, _DRAWS_EACH, flush_queue)
        if self._tracker is not None:
            self._tracker.build()
        # How far windows reach depends on the size of the ring.
        self.configure()

    def _hold(self, state: Mapping[str, Any] | None) -> None:
        """Have in memory what fits; ``state`` says what was there, None where nobody knows."""
        directory, cache = self._directory, self._segment_cache
        assert cache is not None
        self._prioritized.priorities = None
        directory.hold(state)
        try:
            self._bring_back(cache, None if state is None else state["memory"])
        except DroppedError:
            if state is not None:
                raise
            directory.refresh()
            self._hold(None)
            return
        if self._tracker is not None:
            self._tracker.build()

    def _bring_back(self, cache: SegmentCache, memory: Mapping[str, Any] | None) -> None:
        live_range = self._directory.live_range
        cache.forget(live_range.live)
        if live_range.stored <= self._ring.size and live_range.episodes <= cache.most_episodes:
            cache.fill(live_range.live)
        elif memory is not None and memory["spans"]:
            cache.restore(memory)
        else:
            cache.fill_in_part(live_range.live, self._generator)

    def _add(self, batch: EpisodeBatch, logged: EpisodeSpan | None) -> None:
        """Add an episode; ``logged`` says where the write-ahead log has it."""
        assert self._segment_cache is not None
        first, gone = self._directory.add(batch, logged)
        self._let_go_of(gone)
        self._changed(*self._segment_cache.add(batch, first))

    def _let_go_of(self, episodes: int) -> None:
        """So many of the oldest episodes are not live any more."""
        if episodes and self._segment_cache is not None:
            live = self._directory.live_range.live
            self._changed(self._segment_cache.drop_before(live, episodes), None)
            self._cold.drop_before(live)

    def _changed(self, gone: list[CachedSpan], came: CachedSpan | None) -> None:
        """Follow what left the ring, and what came into it."""
        if self._tracker is not None:
            self._tracker.replaced(self._ring.steps if came is None else came.at)
        priorities, cache = self.priorities, self._segment_cache
        if priorities is None or cache is None:
            return
        if not cache.holds_all:
            for at, first, count in gone:
                self._cold.put(first, priorities.errors_of(at, at + count))
        left = (gone[0].at, gone[-1].at + gone[-1].steps) if gone else (0, 0)
        errors = np.zeros(0, np.float32) if came is None else self._known_or_initial(came, priorities)
        priorities.replace(left, 0 if came is None else came.at, errors)

    # Errors

    def _known_or_initial(self, span: CachedSpan, priorities: Priorities) -> Any:
        errors = self._cold.get(span.first, span.steps)
        errors[np.isnan(errors)] = priorities.initial_error
        # Some may have left memory before any error was known.
        return priorities.bounded(errors)

    def _know_all_errors(self) -> None:
        """Take those of what is in memory, too, for when it is not."""
        self._prioritized.settle()
        if self.priorities is not None and self._segment_cache is not None:
            for at, first, count in self._segment_cache.merged():
                self._cold.put(first, self.priorities.errors_of(at, at + count))

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; what is in memory is restored already."""
        saved = state.get("priorities")
        if saved is not None and self._segment_cache is not None:
            known = np.concatenate(
                [self._cold.get(first, count) for _, first, count in self._segment_cache.merged()]
                or [np.zeros(0, np.float32)]
            )
            saved = {**saved, "errors": torch.from_numpy(known)}
        # The oldest transition in memory always begins an episode, wherever it lay then.
        super().load_extra_state({**state, "priorities": saved, "episodes_begun": None})

    @property
    def nbytes(self) -> int:
        """Bytes of memory of what is there and what is known of it, and of what is read ahead."""
        return super().nbytes + self._cold.nbytes + (0 if self._segment_cache is None else self._segment_cache.nbytes)
