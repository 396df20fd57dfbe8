"""Flush queue: finished episodes are grouped to segments, which a thread writes."""

import bisect
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from storages.errors import PersistenceError
from storages.persistent.episodes.episode_batch import EpisodeBatch, joined
from storages.persistent.episodes.memtable import EpisodeSpan
from storages.persistent.episodes.segment import Segment
from storages.persistent.episodes.segment_store import SegmentStore


@dataclass
class _Flush:
    """A segment that is not written yet."""

    segment: Segment
    batch: EpisodeBatch
    logged: list[EpisodeSpan]
    """Where its episodes are in the write-ahead log, of those that are there."""
    watermarks: list[int]
    live: int
    writing: "Future[Segment] | None" = None

    def is_logged(self, until: int) -> bool:
        """Whether the write-ahead log holds all of it, if it holds the steps up to a number."""
        return all(finished.visible_at <= until for finished in self.logged)


class FlushQueue:
    """Queue of finished episodes that are to be flushed to segments.

    A segment is made of episodes that came one after the other, as many as fit its rows, or of one that is longer. It
    is written once the write-ahead log holds all of it, so that the archive never holds what a killed process had not
    committed.

    Args:
        archive: where segments go.
        owner: the storage's name, for errors.
        most_bytes: of segments that wait; an insertion waits rather than let them be more.
    """

    def __init__(self, archive: SegmentStore, owner: str, most_bytes: int | None) -> None:
        self._owner, self._most_bytes = owner, most_bytes
        self._waiting: deque[_Flush] = deque()
        self._by_first: dict[int, EpisodeBatch] = {}
        self._writer = ThreadPoolExecutor(1, "archive")
        self._failed = False
        self.begin_anew(archive)

    def begin_anew(self, archive: SegmentStore) -> None:
        """Hold the segments on disk only; the queue must be empty."""
        assert not self._waiting
        self.archive = archive
        self._open: list[tuple[int, EpisodeBatch, EpisodeSpan | None]] = []
        """Number of the first transition, and the episode."""
        self._open_rows = 0
        self._live_before = archive.live
        """Number of the oldest transition that was live when the newest open episode had come."""
        self._next_row = archive.next_row
        self.segments: dict[int, Segment] = {segment.first: segment for segment in archive.segments}
        """All, by their first transitions; those too that are not written yet."""
        self.go_on_from(archive.watermarks)

    def go_on_from(self, watermarks: list[int]) -> None:
        """Say how many steps of each environment are on disk, or gone."""
        self.watermarks = list(watermarks)
        """Of each environment, how many of its steps have gone into segments."""
        self.watermarks_on_disk = list(watermarks)
        """Of each environment, how many of its steps are in segments that are on disk, or in no segment any more."""

    # In

    def add(self, first: int, batch: EpisodeBatch, logged: EpisodeSpan | None, live: int) -> None:
        """Add an episode; ``live`` is the number of the oldest live transition."""
        rows = self.archive.manifest.segment_rows
        if self._open_rows + batch.rows > rows:
            # Episodes that this one replaces stay live until the write-ahead log has this one.
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

    # To disk

    def advance(self, logged: int) -> bool:
        """Begin to write what the write-ahead log holds up to a step; return whether a segment was completed.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
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
        """Whether a segment is sealed that is not on disk."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the disk has fallen too far behind."""
        most = self._most_bytes
        return most is not None and sum(waiting.batch.nbytes for waiting in self._waiting) > most

    def settle(self, logged: int, *, only_the_first: bool = False) -> None:
        """Write everything that the write-ahead log holds up to a step, and wait for it.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
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
            raise OSError("what comes before it could not be written")
        try:
            return self.archive.append(waiting.batch, waiting.segment, waiting.live, waiting.watermarks)
        except BaseException:
            self._failed = True
            raise

    def _note_written(self) -> None:
        waiting = self._waiting[0]
        try:
            # Not always by the thread, which cannot be asked when the interpreter is about to end, nor where a buffer
            # is closed because it is found to be garbage while another thread is being asked.
            segment = self._write(waiting) if waiting.writing is None else waiting.writing.result()
        except OSError as error:
            for other in self._waiting:
                if other.writing is not None:
                    other.writing.exception()
                    other.writing = None
            self._failed = False
            raise PersistenceError(
                f"{self._owner}: {self.archive.directory} cannot be written: {error}. Nothing is lost: transitions "
                f"from {waiting.segment.first} on are in memory and in the write-ahead log; make room, or give "
                f"permission, and insert or flush() again"
            ) from error
        self.segments[segment.first] = segment
        self.watermarks_on_disk = waiting.watermarks
        del self._by_first[segment.first]
        self._waiting.popleft()

    # What there is

    def read(self, segment: Segment) -> EpisodeBatch:
        """The episodes of a segment; for any thread.

        Raises:
            DamageError: not all of it is what was written.
        """
        waiting = self._by_first.get(segment.first)
        return self.archive.read(self.segments.get(segment.first, segment)) if waiting is None else waiting

    def firsts(self) -> list[int]:
        """The first transitions of all segments, oldest first; episodes that are in none yet count as one."""
        return [*self.segments, *([self._open[0][0]] if self._open else [])]

    def segment(self, first: int) -> tuple[Segment, EpisodeBatch | None] | None:
        """The one that begins with a transition, and its episodes if they are in memory; None where there is none."""
        if first in self.segments:
            return self.segments[first], self._by_first.get(first)
        if self._open and self._open[0][0] == first:
            batch = joined([batch for _, batch, _ in self._open])
            return self.archive.planned(batch, first, self._next_row), batch
        return None

    def oldest_within(self, most_bytes: int) -> int | None:
        """Return the first transition of the newest segments of so many bytes; None if all segments are that small."""
        segments = sorted(self.segments.items())
        total, place = sum(segment.nbytes for _, segment in segments), 0
        while total > most_bytes and place < len(segments) - 1:
            total -= segments[place][1].nbytes
            place += 1
        return segments[place][0] if place else None

    def batch_of(self, first: int, count: int) -> EpisodeBatch:
        """Return whole episodes of one segment by the numbers of their transitions."""
        firsts = self.firsts()
        found = self.segment(firsts[bisect.bisect_right(firsts, first) - 1])
        assert found is not None
        segment, batch = found
        ends = segment.first + np.cumsum(segment.lengths)
        begin, end = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, first + count, side="left") + 1
        return (self.read(segment) if batch is None else batch).select(int(begin), int(end))

    def open_batches(self) -> Iterator[tuple[int, EpisodeBatch]]:
        """Episodes that are in no segment yet, and the numbers of their first transitions."""
        return ((first, batch) for first, batch, _ in self._open)

    def unwritten(self) -> list[EpisodeSpan]:
        """Return where episodes that are in no segment on disk are in the write-ahead log."""
        finished = [one for waiting in self._waiting for one in waiting.logged]
        return finished + [one for *_, one in self._open if one is not None]

    @property
    def has_unlogged_episodes(self) -> bool:
        """Whether an episode would be lost with the process."""
        return any(finished is None for *_, finished in self._open)

    def first_unwritten(self, otherwise: int) -> int:
        """Number of the oldest transition that is not on disk."""
        if self._waiting:
            return self._waiting[0].segment.first
        return self._open[0][0] if self._open else otherwise

    def forget(self, live: int) -> None:
        """Segments without live transitions do not count any more."""
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
    """Episodes that a storage still holds.

    Transitions are numbered in the order in which their episodes ended; the oldest go first.

    Numbers may be left out: of episodes that were lost.
    """

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, live: int, following: int) -> None:
        """Hold nothing; ``live`` is the number of the oldest transition to come, ``following`` that of the next."""
        self.live, self.next, self.stored = live, following, 0
        self._episodes: deque[tuple[int, int]] = deque()
        """First transition and length of each."""

    @property
    def episodes(self) -> int:
        """How many there are."""
        return len(self._episodes)

    def count(self, first: int, lengths: list[int]) -> None:
        """Count consecutive episodes, except those that are not live."""
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

    def drop_before(self, live: int) -> int:
        """Drop all episodes before a transition; return how many were dropped."""
        gone = 0
        while self._episodes and self._episodes[0][0] < live:
            self.stored -= self._episodes.popleft()[1]
            gone += 1
        self.live = max(self.live, live)
        return gone
