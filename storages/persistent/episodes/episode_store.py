"""The episodes of a directory: memtable, flush queue, segments and segment cache."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import converted
from storages.core.ring.ring import Ring
from storages.episode import Episode
from storages.errors import DamageError, DroppedError, PersistenceError
from storages.persistent.episodes.episode_batch import EpisodeBatch, columns_of, episodes_since, first_step_of
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.episodes.flush_queue import FlushQueue, LiveRange
from storages.persistent.episodes.memory_plan import MemoryBudget, MemoryPlan
from storages.persistent.episodes.memtable import EpisodeSpan, Memtable, State, late_of, watermarks_of
from storages.persistent.episodes.segment import Segment
from storages.persistent.episodes.segment_cache import SegmentCache
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.log.json_file import name_owner, name_repair
from storages.transition import OBS2, RHS2, Sample


class EpisodeStore:
    """Collects steps into episodes, and stores finished episodes in segments.

    Args:
        folder: the directory.
        ring: ring of the episodes in memory, whose columns are not allocated yet.
        cache: the segment cache, which fills the ring.
        budget: limits of memory and size.
        size_bytes: bytes on disk beyond which the oldest segments are deleted; None for no limit.
        durable: whether writes survive a power cut.
        read_only: whether another process may be writing to the directory, and this one must not.
    """

    def __init__(
        self,
        folder: Path,
        ring: Ring,
        cache: SegmentCache,
        budget: MemoryBudget,
        size_bytes: int | None,
        *,
        durable: bool,
        read_only: bool,
    ) -> None:
        self.folder, self.durable, self.read_only = folder, durable, read_only
        self.budget = budget
        self.live_range = LiveRange()
        """Which episodes are live."""
        self.cache = cache
        self.memtable: Memtable | None = None
        """Steps of episodes that are unfinished, or in no segment yet; None if ``read_only``."""
        self.flush_queue: FlushQueue | None = None
        """Segments, and finished episodes that are not flushed yet; None before the first transition."""
        self._ring, self._owner = ring, ring.owner
        self._size_bytes = size_bytes
        self._closed = False

    # Opening

    def _write_manifest(self) -> None:
        """Write the manifest of a new directory, with the layout of the memtable."""
        memtable = self.writable()
        ring = memtable.ring
        plan = self.budget.plan(ring.layout, ring.stacked, ring.envs)
        manifest = EpisodeManifest.made(ring.layout, ring.stacked, plan.segment_rows)
        self.written(lambda: manifest.write(self.folder, self.durable))
        self.begin(manifest, plan)
        memtable.make_room(max(plan.running_steps, ring.live_steps))

    def begin(self, manifest: EpisodeManifest, plan: MemoryPlan) -> None:
        """Open the segments of a manifest, and allocate the columns of the ring.

        Raises:
            DamageError: the log of segments or the zarr metadata are damaged.
            PersistenceError: the ring was made for other observations than those of the manifest.
            ValueError: the memory is too small for the longest episodes.
        """
        archive = (
            SegmentStore.beside_a_writer(self.folder, manifest)
            if self.read_only
            else SegmentStore(self.folder, manifest, self.durable)
        )
        flaws = manifest.flaws_of_zarr(self.folder) if archive.next_row else []
        if flaws:
            with name_repair(self.folder, "rebuilds it"):
                raise DamageError(flaws[0])
        if not self.read_only:
            # Before the ring is changed, so that the call can be repeated after a failed write.
            self.written(archive.delete_uncommitted)
        archive.warn_of_lost()
        queue = FlushQueue(archive, self._owner, plan.waiting_bytes)
        self.cache.begin(queue, plan)
        self.budget.refuse_larger(max((segment.rows for segment in archive.segments), default=0), manifest, self.folder)
        self.flush_queue = queue
        if self.memtable is not None:
            self.memtable.longest = plan.longest

    def hold(self, state: Mapping[str, Any], generator: np.random.Generator) -> None:
        """Restore the live episodes of segments and memtable, and fill the cache.

        Args:
            state: the state of :meth:`state` that was committed with the steps of the memtable; its ``memory`` is the
                state of the cache, None for as many segments as fit.
            generator: draws the order in which a pass loads segments.
        """
        queue, live_range = self.queue, self.live_range
        archive = queue.archive
        # Not the live range of the write-ahead log: it may exclude episodes whose replacements a crash has lost.
        live = archive.live
        following = max(archive.end, state["unwritten"], live)
        # Segments may have been lost, and what is stored begins with what the write-ahead log holds then.
        live_range.begin(live if archive.held else following, following)
        for segment in archive.held:
            live_range.count(segment.first, segment.lengths.tolist())
        if self.memtable is not None:
            self.memtable.newest = max(self.memtable.newest, _number_of_newest(state))
        if self.memtable is not None and self.memtable.ring.layout:
            watermarks = watermarks_of(state, archive, self.memtable.ring)
            queue.resume_from(watermarks)
            for one in self.memtable.resume_from(watermarks, late_of(state)):
                batch, first = self.memtable.batch(one), live_range.next
                live_range.count(first, batch.lengths.tolist())
                queue.add(first, batch, one, live_range.live)
        if self.budget.size is not None:
            live_range.keep(self.budget.size)
        queue.forget(live_range.live)
        self.cache.cold.keep(live_range.live, live_range.next)
        self._fill_cache(state["memory"], generator)

    def _fill_cache(self, memory: Mapping[str, Any] | None, generator: np.random.Generator) -> None:
        lost = self.queue.archive.lost
        if (
            lost
            and memory is not None
            and not all(self.queue.holds(first, steps) for _, first, steps in memory["spans"])
        ):
            # They were lost with an ancestor.
            memory = None
        try:
            self.cache.hold(self.live_range, memory, generator)
        except DroppedError:
            if self._forget_lost():
                self._fill_cache(memory, generator)
                return
            if not self.read_only or memory is not None:
                raise
            self._follow_writer()
            self.hold(self.state(), generator)

    def _forget_lost(self) -> bool:
        """Forget the episodes that were lost with an ancestor; return whether there are any."""
        lost = [segment for first, segment in self.queue.archive.lost.items() if first in self.queue.segments]
        for segment in lost:
            del self.queue.segments[segment.first]
            self.live_range.forget(segment.first, segment.end)
        if lost:
            self.queue.archive.warn_of_lost()
        return bool(lost)

    def state(self) -> dict[str, Any]:
        """Return the state that is committed with the steps, for :meth:`hold`."""
        queue, following = self.flush_queue, self.live_range.next
        return {
            "live": self.live_range.live,
            "unwritten": following if queue is None else queue.first_unwritten(following),
            "watermarks": [] if queue is None else queue.watermarks_on_disk,
            "newest": 0 if self.memtable is None else self.memtable.newest,
            "late": [] if self.memtable is None else self.memtable.late,
            "memory": None,
        }

    # Insertion

    def init_columns(self, sample: Sample) -> None:
        """Determine the layout from a sample, which is not stored."""
        ring = self.writable().ring
        num_envs = ring.num_envs
        ring.init_columns(sample)
        if self.flush_queue is None:
            try:
                self._write_manifest()
            except BaseException:
                # So that another sample can determine the layout.
                ring.forget_columns()
                ring.num_envs = num_envs
                raise

    def writable(self) -> Memtable:
        """Return the memtable, if steps can be written.

        Raises:
            PersistenceError: the storage is read-only or closed, or this process was forked.
        """
        if self.memtable is None or self.memtable.wal.closed:
            why, way_out = (
                ("it is read only", "make it with read_only=False where no other process writes")
                if self.read_only
                else ("it was closed, or this process was forked", "make it again where it was closed")
            )
            raise PersistenceError(
                f"{self._owner}: nothing can be written to {self.folder}: {why}; {way_out}, or name another directory"
            )
        return self.memtable

    def insert(self, sample: Sample, state: State) -> int:
        """Insert a step, add the episodes that it finishes, and return the number of environments.

        Args:
            sample: the step; if an error is raised, none of it is stored.
            state: returns the state to commit with the steps; called when a commit is due.
        """
        memtable = self.writable()
        if self.flush_queue is None:
            self.init_columns(sample)
        elif self.flush_queue.has_waiting_segments:
            self._advance(memtable, state)
        for one in memtable.insert(sample, state):
            self._add(memtable.batch(one), one)
        return memtable.ring.envs

    def end_episodes(self, envs: NDArray[np.int64] | None) -> None:
        """End the running episodes of some environments, or of all if None, after the newest step."""
        memtable = self.writable()
        if self.flush_queue is not None:
            for one in memtable.end_episodes(envs):
                self._add(memtable.batch(one), one)

    def add_episode(self, episode: Episode, state: State) -> None:
        """Add a whole episode.

        Args:
            episode: the episode.
            state: returns the state to commit with the steps; called when a commit is due.
        """
        memtable, ring = self.writable(), self._ring
        columns, length = columns_of(episode), len(episode)
        if self.flush_queue is None:
            self.init_columns(first_step_of(columns, memtable.ring.num_envs or 1))
        else:
            self._advance(memtable, state)
        ring.init_columns(first_step_of(columns, 1))
        most = ring.size if memtable.longest is None else memtable.longest
        if length > most:
            raise PersistenceError(
                f"{self._owner}: an episode of {length} steps is longer than the {most} transitions that fit; "
                f"make it with a larger size or memory_bytes"
            )
        kept = {
            path: converted(column, path, ring.layout[path].dtype, self._owner)
            for path, column in columns.items()
            if path[0] not in (OBS2, RHS2)
        }
        self._add(EpisodeBatch.of_episode(kept, ring.stacked, dict(episode.facts)), None)

    def _add(self, batch: EpisodeBatch, logged: EpisodeSpan | None) -> None:
        """Add a finished episode to the queue and the cache; ``logged`` is its place in the write-ahead log."""
        live_range, queue = self.live_range, self.queue
        first = live_range.next
        live_range.count(first, batch.lengths.tolist())
        gone = 0 if self.budget.size is None else live_range.keep(self.budget.size)
        if gone:
            queue.forget(live_range.live)
        queue.add(first, batch, logged, live_range.live)
        if gone:
            self.cache.drop_before(live_range.live, gone)
        self.cache.add(batch, first)

    def _advance(self, memtable: Memtable, state: State) -> None:
        """Flush sealed segments whose steps are committed, release their memory, and enforce ``size_bytes``.

        Raises:
            PersistenceError: a write failed; it will be retried.
        """
        queue = self.queue
        written = queue.advance(memtable.wal.written)
        while queue.is_full:
            memtable.wal.flush(state(), None)
            queue.settle(memtable.wal.written, only_the_first=True)
            written = True
        if written:
            memtable.release(queue.unwritten())
            oldest = None if self._size_bytes is None else queue.oldest_within(self._size_bytes)
            if oldest is not None:
                self._drop_before(oldest)

    def _drop_before(self, live: int) -> None:
        """Drop all episodes before a transition."""
        gone = self.live_range.drop_before(live)
        self.queue.forget(self.live_range.live)
        if gone:
            self.cache.drop_before(self.live_range.live, gone)

    def settle(self, state: State, seal: bool) -> dict[str, Any]:
        """Commit the memtable, flush all sealed segments, and return the state that was committed with the steps.

        Args:
            state: returns the state to commit with the steps.
            seal: seal the open segment of the newest episodes first.

        Raises:
            PersistenceError: a write failed; it will be retried.
        """
        memtable, queue = self.writable(), self.queue
        if seal:
            queue.seal(self.live_range.live)
        beside = state()
        memtable.wal.flush(beside, None)
        queue.settle(memtable.wal.written)
        memtable.release(queue.unwritten())
        return beside

    def reset(self, state: State) -> None:
        """Delete all episodes, finished and running."""
        memtable, queue = self.writable(), self.flush_queue
        if queue is None:
            return
        self.settle(state, seal=True)
        following = self.live_range.next
        memtable.reset()
        watermarks = memtable.start_rows.tolist()
        self.written(lambda: queue.archive.note(following, watermarks))
        queue.restart(queue.archive)
        self.live_range.begin(following, following)
        self.cache.reset(following)

    def written(self, write: Callable[[], None]) -> None:
        """Call a function that writes, and convert its OSError.

        Raises:
            PersistenceError: the write failed.
        """
        with name_owner(self._owner, self.folder, ". What was committed there is safe; {remedy}, and flush() again"):
            write()

    # Reading

    def refill(self, generator: np.random.Generator) -> None:
        """Load the segments that are due into the cache; the generator draws the order of the next pass."""
        while self.cache.needs_refill:
            try:
                if not self.cache.load_next(self.live_range.live, generator):
                    return
            except DroppedError:
                if not self._forget_lost():
                    self.refresh(generator)

    def refresh(self, generator: np.random.Generator) -> None:
        """Add the segments that another process has written since, and drop those that it has dropped.

        Raises:
            PersistenceError: the directory was closed.
            DamageError: a segment or the log is damaged.
        """
        while (new := self._follow_writer()) is not None:
            try:
                for segment in new:
                    if segment.end > self.live_range.live:
                        self.cache.add_segment(segment, self.live_range.live)
            except DroppedError:
                self._forget_lost()
                continue
            return
        self.hold(self.state(), generator)

    def _follow_writer(self) -> list[Segment] | None:
        """Return the segments that another process has written since the last call; None if it has rolled back."""
        queue = self.queue
        if self._closed:
            raise PersistenceError(f"{self._owner}: {self.folder} was closed and is no longer read; make it again")
        known = dict(queue.segments)
        archive = SegmentStore.beside_a_writer(self.folder, queue.archive.manifest)
        archive.lost |= queue.archive.lost
        queue.restart(archive)
        now = queue.segments
        same = {first for first, segment in known.items() if first in now and now[first].is_same_as(segment)}
        if any(segment.end > archive.live and first not in same for first, segment in known.items()):
            return None
        new = [segment for first, segment in sorted(now.items()) if first not in known]
        for segment in new:
            self.live_range.count(segment.first, segment.lengths.tolist())
        self._drop_before(archive.live)
        return new

    def episodes(self, *, whole: bool) -> Iterator[Episode]:
        """Iterate over all live finished episodes, the oldest first, reading one segment at a time.

        Args:
            whole: leave out episodes without their first step or their end.

        Raises:
            DamageError: a segment is damaged; the text names the file and the episodes.
        """
        if self.flush_queue is None:
            return
        live, layout = self.live_range.live, self._ring.layout
        for first, segment in sorted(self.flush_queue.segments.items()):
            if segment.end > live:
                # Another process may drop the segment meanwhile.
                with suppress(DroppedError):
                    batch = self.flush_queue.read(segment)
                    yield from episodes_since(live, first, batch, layout, whole=whole)
        for first, batch in list(self.flush_queue.open_batches()):
            yield from episodes_since(live, first, batch, layout, whole=whole)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of memtable and flush queue."""
        memtable = 0 if self.memtable is None else self.memtable.ring.columns.nbytes
        return memtable + (0 if self.flush_queue is None else self.flush_queue.nbytes)

    def close(self) -> None:
        """Close all files and end all threads, without writing."""
        self._closed = True
        self.cache.close()
        if self.flush_queue is not None:
            self.flush_queue.close()
        if self.memtable is not None:
            self.memtable.wal.close()

    @property
    def queue(self) -> FlushQueue:
        """The flush queue, which must exist."""
        assert self.flush_queue is not None
        return self.flush_queue


def _number_of_newest(state: Mapping[str, Any]) -> int:
    """Return the number of newest steps that a state says to keep; earlier versions say nothing.

    Raises:
        TypeError: it is no number.
    """
    newest = state.get("newest", 0)
    if not isinstance(newest, int):
        raise TypeError(f"the newest steps to keep must be a number, got {newest!r}")
    return newest
