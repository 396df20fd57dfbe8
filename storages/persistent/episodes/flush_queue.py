"""Flush queue: groups finished episodes into segments, which a background thread writes."""

import bisect
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from storages.errors import PersistenceError
from storages.open_files import remedy_of
from storages.persistent.episodes.episode_batch import EpisodeBatch, joined
from storages.persistent.episodes.memtable import EpisodeSpan
from storages.persistent.episodes.segment import Segment
from storages.persistent.episodes.segment_store import SegmentStore


@dataclass
class _Flush:
    """A sealed segment that is not on disk yet."""

    segment: Segment
    batch: EpisodeBatch
    logged: list[EpisodeSpan]
    """Places in the write-ahead log of those of its episodes that were inserted step by step."""
    watermarks: list[int]
    live: int
    writing: "Future[Segment] | None" = None

    def is_logged(self, until: int) -> bool:
        """Return whether all its episodes are in a write-ahead log that holds the steps before ``until``."""
        return all(finished.visible_at <= until for finished in self.logged)


class FlushQueue:
    """Queue of finished episodes that are to be flushed to segments.

    A segment holds consecutive episodes, as many as fit its rows, or a single longer one. It is written once the
    write-ahead log holds all its episodes, so that the segments on disk never hold steps that are not committed.

    Args:
        archive: the store of segments.
        owner: the storage's name, for errors.
        most_bytes: bytes of sealed segments beyond which an insertion waits for the disk; None for no limit.
    """

    def __init__(self, archive: SegmentStore, owner: str, most_bytes: int | None) -> None:
        self._owner, self._most_bytes = owner, most_bytes
        self._waiting: deque[_Flush] = deque()
        self._by_first: dict[int, EpisodeBatch] = {}
        self._writer = ThreadPoolExecutor(1, "archive")
        self._failed = False
        self.restart(archive)

    def restart(self, archive: SegmentStore) -> None:
        """Start from the segments on disk; no segment may be waiting."""
        assert not self._waiting
        self.archive = archive
        self._open: list[tuple[int, EpisodeBatch, EpisodeSpan | None]] = []
        """Episodes of the open segment: number of the first transition, episode, place in the write-ahead log."""
        self._open_rows = 0
        self._live_before = archive.live
        """Number of the oldest live transition when the newest open episode was added."""
        self._next_row = archive.next_row
        self.segments: dict[int, Segment] = {segment.first: segment for segment in archive.held}
        """All sealed segments, on disk or not, by the numbers of their first transitions."""
        self.resume_from(archive.watermarks)

    def resume_from(self, watermarks: list[int]) -> None:
        """Set the watermarks: for each environment, the number of its steps that are on disk or were dropped."""
        self.watermarks = list(watermarks)
        """For each environment, the number of its steps that are in sealed segments or were dropped."""
        self.watermarks_on_disk = list(watermarks)
        """For each environment, the number of its steps that are in segments on disk or were dropped."""

    # Insertion

    def add(self, first: int, batch: EpisodeBatch, logged: EpisodeSpan | None, live: int) -> None:
        """Add a finished episode to the open segment, and seal the segment if it is full.

        Args:
            first: number of its first transition.
            batch: the episode.
            logged: its place in the write-ahead log; None if it was not inserted step by step.
            live: number of the oldest live transition.
        """
        rows = self.archive.manifest.segment_rows
        if self._open_rows + batch.rows > rows:
            # Episodes that this one replaces stay live until this one is in the write-ahead log.
            self.seal(self._live_before)
        self._open.append((first, batch, logged))
        self._open_rows += batch.rows
        self._live_before = live
        if self._open_rows >= rows:
            self.seal(live)

    def seal(self, live: int) -> None:
        """Seal the open segment; the next episode begins another one."""
        open_batches, self._open, self._open_rows = self._open, [], 0
        for *_, finished in open_batches:
            if finished is not None:
                self._mark(finished)
        kept = [one for one in open_batches if one[0] >= live]
        if not kept:
            if not self._waiting:
                self.watermarks_on_disk = list(self.watermarks)
            return
        batch = joined([one for _, one, _ in kept])
        segment = self.archive.planned(batch, kept[0][0], self._next_row)
        self._next_row = self.archive.row_after(segment)
        self.segments[segment.first] = segment
        self._by_first[segment.first] = batch
        logged = [finished for *_, finished in open_batches if finished is not None]
        self._waiting.append(_Flush(segment, batch, logged, list(self.watermarks), live))

    def _mark(self, finished: EpisodeSpan) -> None:
        self.watermarks += [0] * (finished.env + 1 - len(self.watermarks))
        self.watermarks[finished.env] = max(self.watermarks[finished.env], finished.end)

    # Flushing

    def advance(self, logged: int) -> bool:
        """Submit the segments that the write-ahead log holds up to a step; return whether a segment was completed.

        Raises:
            PersistenceError: a segment could not be written; it will be retried.
        """
        for waiting in self._waiting:
            if waiting.writing is None:
                if not waiting.is_logged(logged):
                    break
                waiting.writing = self._writer.submit(self._write, waiting)
        written = False
        while self._waiting and (writing := self._waiting[0].writing) is not None and writing.done():
            self._note_written()
            written = True
        return written

    @property
    def has_waiting_segments(self) -> bool:
        """Whether a sealed segment is not on disk yet."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the waiting segments take more than ``most_bytes``."""
        most = self._most_bytes
        return most is not None and sum(waiting.batch.nbytes for waiting in self._waiting) > most

    def settle(self, logged: int, *, only_the_first: bool = False) -> None:
        """Write the sealed segments that the write-ahead log holds up to a step, and wait for them.

        Raises:
            PersistenceError: a segment could not be written; it will be retried.
        """
        while self._waiting:
            first = self._waiting[0]
            if first.writing is None and not first.is_logged(logged):
                return
            self._note_written()
            if only_the_first:
                return

    def _write(self, waiting: _Flush) -> Segment:
        if self._failed:
            raise OSError("an earlier segment could not be written")
        try:
            return self.archive.append(waiting.batch, waiting.segment, waiting.live, waiting.watermarks)
        except BaseException:
            self._failed = True
            raise

    def _note_written(self) -> None:
        waiting = self._waiting[0]
        try:
            # Written here if not submitted: an executor takes no work at interpreter exit, nor from the garbage
            # collector, if that closes a buffer during another submit().
            segment = self._write(waiting) if waiting.writing is None else waiting.writing.result()
        except OSError as error:
            for other in self._waiting:
                if other.writing is not None:
                    other.writing.exception()
                    other.writing = None
            self._failed = False
            raise PersistenceError(
                f"{self._owner}: {self.archive.directory} cannot be written: {error}. Nothing is lost: transitions "
                f"from {waiting.segment.first} on are in memory and in the write-ahead log; {remedy_of(error)}, and "
                f"insert or flush() again"
            ) from error
        self.segments[segment.first] = segment
        self.watermarks_on_disk = waiting.watermarks
        del self._by_first[segment.first]
        self._waiting.popleft()

    # Reading

    def read(self, segment: Segment) -> EpisodeBatch:
        """Return the episodes of a segment, from memory or disk; thread-safe.

        Raises:
            DamageError: a chunk is damaged.
        """
        waiting = self._by_first.get(segment.first)
        return self.archive.read(self.segments.get(segment.first, segment)) if waiting is None else waiting

    def firsts(self) -> list[int]:
        """Return the numbers of the first transitions of all segments, the open one included, oldest first."""
        return [*self.segments, *([self._open[0][0]] if self._open else [])]

    def segment(self, first: int) -> tuple[Segment, EpisodeBatch | None] | None:
        """Return the segment with a first transition, and its episodes if they are in memory; None if there is none."""
        if first in self.segments:
            return self.segments[first], self._by_first.get(first)
        if self._open and self._open[0][0] == first:
            batch = joined([batch for _, batch, _ in self._open])
            return self.archive.planned(batch, first, self._next_row), batch
        return None

    def oldest_within(self, most_bytes: int) -> int | None:
        """Return the first transition of the newest segments that fit ``most_bytes``; None if all segments fit."""
        segments = sorted(self.segments.items())
        total, place = sum(segment.nbytes for _, segment in segments), 0
        while total > most_bytes and place < len(segments) - 1:
            total -= segments[place][1].nbytes
            place += 1
        return segments[place][0] if place else None

    def holds(self, first: int, count: int) -> bool:
        """Return whether one segment has all of the transitions [first, first + count)."""
        firsts = self.firsts()
        place = bisect.bisect_right(firsts, first) - 1
        found = self.segment(firsts[place]) if place >= 0 else None
        return found is not None and first + count <= found[0].end

    def batch_of(self, first: int, count: int) -> EpisodeBatch:
        """Return the episodes of one segment with the transitions [first, first + count)."""
        firsts = self.firsts()
        found = self.segment(firsts[bisect.bisect_right(firsts, first) - 1])
        assert found is not None
        segment, batch = found
        ends = segment.first + np.cumsum(segment.lengths)
        begin, end = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, first + count, side="left") + 1
        return (self.read(segment) if batch is None else batch).select(int(begin), int(end))

    def open_batches(self) -> Iterator[tuple[int, EpisodeBatch]]:
        """Iterate over the episodes of the open segment, with the numbers of their first transitions."""
        return ((first, batch) for first, batch, _ in self._open)

    def unwritten(self) -> list[EpisodeSpan]:
        """Return the places in the write-ahead log of finished episodes that are in no segment on disk."""
        finished = [one for waiting in self._waiting for one in waiting.logged]
        return finished + [one for *_, one in self._open if one is not None]

    @property
    def has_unlogged_episodes(self) -> bool:
        """Whether an episode of the open segment is not in the write-ahead log; a crash would lose it."""
        return any(finished is None for *_, finished in self._open)

    def first_unwritten(self, otherwise: int) -> int:
        """Return the number of the oldest transition in no segment on disk; ``otherwise`` if there is none."""
        if self._waiting:
            return self._waiting[0].segment.first
        return self._open[0][0] if self._open else otherwise

    def forget(self, live: int) -> None:
        """Forget the segments on disk that have no live transitions."""
        for first in [first for first, segment in self.segments.items() if segment.end <= live]:
            if first not in self._by_first:
                del self.segments[first]

    @property
    def nbytes(self) -> int:
        """Bytes of memory of episodes that are not on disk."""
        open_batches = sum(batch.nbytes for _, batch, _ in self._open)
        return open_batches + sum(waiting.batch.nbytes for waiting in self._waiting)

    def close(self) -> None:
        """End the thread, without writing."""
        self._writer.shutdown()
        self.archive.close()


class LiveRange:
    """The live episodes of a storage: the newest ones, from the oldest live transition on.

    Transitions are numbered in the order in which their episodes ended, and are dropped in that order. Numbers of
    episodes that a crash has lost are left out.
    """

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, live: int, following: int) -> None:
        """Start without episodes.

        Args:
            live: number of the oldest transition that is still stored.
            following: number of the next new transition.
        """
        self.live, self.next, self.stored = live, following, 0
        self._episodes: deque[tuple[int, int]] = deque()
        """First transition and length of each episode."""

    @property
    def episodes(self) -> int:
        """Number of live episodes."""
        return len(self._episodes)

    def count(self, first: int, lengths: list[int]) -> None:
        """Add consecutive episodes of these lengths, except those before the live range."""
        for length in lengths:
            if first >= self.live:
                self._episodes.append((first, length))
                self.stored += length
            first += length
        self.next = max(self.next, first)

    def keep(self, size: int) -> int:
        """Drop the oldest episodes until at most ``size`` transitions are live; return how many were dropped."""
        gone = 0
        while self.stored > size:
            self.stored -= self._episodes.popleft()[1]
            gone += 1
        if gone:
            self.live = self._episodes[0][0] if self._episodes else self.next
        return gone

    def forget(self, first: int, end: int) -> None:
        """Remove the episodes with the transitions [first, end), which were lost."""
        self.stored -= sum(length for begin, length in self._episodes if first <= begin < end)
        self._episodes = deque(episode for episode in self._episodes if not first <= episode[0] < end)

    def drop_before(self, live: int) -> int:
        """Drop all episodes before a transition; return how many were dropped."""
        gone = 0
        while self._episodes and self._episodes[0][0] < live:
            self.stored -= self._episodes.popleft()[1]
            gone += 1
        self.live = max(self.live, live)
        return gone
