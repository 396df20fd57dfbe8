"""A directory of episodes: a memtable with its write-ahead log, a flush queue, segments, and the lock."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from storages.core.ring.layout import Layout
from storages.episode import Episode
from storages.errors import DamageError, DroppedError, PersistenceError
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_batch import EpisodeBatch, episodes_since
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.episodes.flush_queue import FlushQueue, LiveRange
from storages.persistent.episodes.markers import (
    ClosedState,
    EpisodePosition,
    closed_state_of,
    nothing_on_disk,
    read_marker,
    refuse_missing_records,
    remove_marker,
    write_marker,
)
from storages.persistent.episodes.memory_plan import MemoryPlan
from storages.persistent.episodes.memtable import EpisodeSpan, Memtable, watermarks_of
from storages.persistent.episodes.segment import Segment
from storages.persistent.episodes.segment_store import SegmentStore, manifest_to_read, manifest_to_write
from storages.persistent.log.files import make_directory, refuse_links_in
from storages.persistent.log.lock import Lock
from storages.persistent.replay.manifest import Manifest

WAL_FOLDER = "wal"
"""Subfolder of the write-ahead log."""
State = Callable[[], dict[str, Any]]
"""Called for the state of the storage when it is to be committed."""


class EpisodeStore:
    """Takes episodes as they end, and has them on disk as :mod:`storages.persistent` promises.

    Args:
        folder: where.
        owner: the storage's name, for errors.
        size: transitions that stay; None for no bound.
        size_bytes: bytes on disk, beyond which the oldest segments go; None for no bound.
        durable: whether what is there survives a power cut.
        read_only: whether somebody else writes.
        ancestor: the directory that this one goes on from, if any.
    """

    def __init__(
        self,
        folder: Path,
        owner: str,
        *,
        size: int | None,
        size_bytes: int | None,
        durable: bool,
        read_only: bool,
        ancestor: Path | None,
    ) -> None:
        self.folder = folder
        self.live_range = LiveRange()
        """Which episodes are live."""
        self.memtable: Memtable | None = None
        """Steps of episodes that have not ended, or are in no segment yet; None where somebody else writes."""
        self.flush_queue: FlushQueue | None = None
        """Segments, and batches on the way there; None before the first transition."""
        self._owner, self._size, self._size_bytes = owner, size, size_bytes
        self._durable, self._read_only, self._ancestor = durable, read_only, ancestor
        self._lock: Lock | None = None
        self._closed = False

    # Opening

    def claim(self) -> EpisodeManifest | None:
        """Lock the directory, unless it is only read; return its manifest, if there is one.

        Raises:
            PersistenceError: somebody else writes there, or something else lies there.
            OSError: it cannot be written.
        """
        if self._read_only:
            return manifest_to_read(self.folder)
        EpisodeManifest.read(self.folder)
        if self.folder.exists():
            refuse_links_in(self.folder)
        else:
            make_directory(self.folder, self._durable)
        self._lock = Lock(self.folder)
        return manifest_to_write(self.folder, self._ancestor, self._durable)

    @property
    def kept_environments(self) -> int | None:
        """Environments of the steps in the write-ahead log; None if there are none."""
        kept = Manifest.read(self.folder / WAL_FOLDER)
        return None if kept is None else kept.num_envs

    def open_wal(
        self,
        num_envs: int | None,
        stacked_frames: int | Mapping[str, int],
        allow_nonfinite: bool,
        commit_every: int,
        steps: int,
    ) -> None:
        """Open the write-ahead log, or begin one, with room for ``steps`` at first."""
        self.memtable = Memtable(
            self.folder / WAL_FOLDER,
            self._owner,
            num_envs,
            stacked_frames,
            allow_nonfinite,
            commit_every,
            self._durable,
            steps,
        )

    def write_manifest(self, manifest: EpisodeManifest) -> None:
        """Write a new manifest."""
        self._written(lambda: manifest.write(self.folder, self._durable))

    def begin_archive(self, manifest: EpisodeManifest, plan: MemoryPlan) -> FlushQueue:
        """Open the segments of a manifest.

        Raises:
            DamageError: it is not what was written.
        """
        archive = (
            SegmentStore.beside_a_writer(self.folder, manifest)
            if self._read_only
            else SegmentStore(self.folder, manifest, self._durable)
        )
        flaws = manifest.flaws_of_zarr(self.folder) if archive.next_row else []
        if flaws:
            raise DamageError(
                f"{self._owner}: {flaws[0]}. storages.persistent.repair({str(self.folder)!r}) makes it anew"
            )
        if not self._read_only:
            self._written(archive.tidy)
        self.flush_queue = FlushQueue(archive, self._owner, plan.waiting_bytes)
        if self.memtable is not None:
            self.memtable.longest = plan.longest
        return self.flush_queue

    def recover(self) -> dict[str, Any] | None:
        """Recover the memtable, and finish a rollback; return the state beside the steps, None if there is none.

        Raises:
            PersistenceError: it was going back to what is not there any more.
            DamageError: something is not what was written.
        """
        if self.memtable is None:
            return None
        state = self.memtable.recover()
        # Who wrote here last was killed while it went back.
        gone_back_to = read_marker(self.folder)
        if gone_back_to is not None:
            self._refuse_unless_there(gone_back_to)
            return self._go_back(gone_back_to)
        closed = closed_state_of(state)
        if closed is not None:
            refuse_missing_records(self.folder, self._owner, closed, self._flushing.archive.record)
        return state

    def _refuse_unless_there(self, state: Mapping[str, Any]) -> None:
        try:
            self._flushing.archive.refuse_unless_there(state["archive"])
            self.writable().wal.refuse_unless_there(state["position"])
        except DamageError:
            raise
        except PersistenceError:
            remove_marker(self.folder, self._durable)
            raise

    def known_errors(self, state: Mapping[str, Any] | None) -> ColdPriorities:
        """Read the cold priorities; ``state`` is what was committed beside the steps.

        Raises:
            DamageError: they are not what was written.
        """
        closed = closed_state_of(state)
        as_closed = closed is not None and closed["archive"] == self._flushing.archive.record
        return ColdPriorities.read(self.folder, closed["errors"] if closed is not None and as_closed else None)

    def hold(self, state: Mapping[str, Any] | None) -> None:
        """Count the episodes of segments and memtable; ``state`` is what was committed beside the steps."""
        flush_queue, live_range = self._flushing, self.live_range
        archive = flush_queue.archive
        # The write-ahead log may already leave out episodes whose replacements were lost with a killed process.
        live = archive.live
        live_range.begin(live, archive.end if state is None else max(archive.end, state["unwritten"], live))
        for segment in archive.segments:
            live_range.count(segment.first, segment.lengths.tolist())
        if state is not None and self.memtable is not None:
            watermarks = watermarks_of(state, archive, self.memtable.ring)
            flush_queue.go_on_from(watermarks)
            for one in self.memtable.go_on_from(watermarks):
                batch, first = self.memtable.batch(one), live_range.next
                live_range.count(first, batch.lengths.tolist())
                flush_queue.add(first, batch, one, live_range.live)
        if self._size is not None:
            live_range.keep(self._size)
        flush_queue.forget(live_range.live)

    # In

    def writable(self) -> Memtable:
        """Where steps go.

        Raises:
            PersistenceError: nothing can be written.
        """
        if self.memtable is None or self.memtable.wal.closed:
            why, way_out = (
                ("it is read only", "make it with read_only=False where no other process writes")
                if self._read_only
                else ("it was closed, or this process was forked", "make it again where it was closed")
            )
            raise PersistenceError(
                f"{self._owner}: nothing can be written to {self.folder}: {why}; {way_out}, or name another directory"
            )
        return self.memtable

    def add(self, batch: EpisodeBatch, logged: EpisodeSpan | None) -> tuple[int, int]:
        """Add an episode; ``logged`` says where the write-ahead log has it.

        Returns:
            The number of its first transition, and how many of the oldest episodes are not live any more.
        """
        live_range, flush_queue = self.live_range, self._flushing
        first = live_range.next
        live_range.count(first, batch.lengths.tolist())
        gone = 0 if self._size is None else live_range.keep(self._size)
        if gone:
            flush_queue.forget(live_range.live)
        flush_queue.add(first, batch, logged, live_range.live)
        return first, gone

    def advance(self, state: State) -> int:
        """Flush what can be flushed; return how many of the oldest episodes are not live any more.

        To be called where :meth:`writable` has just been.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
        """
        memtable, flush_queue = self.memtable, self._flushing
        assert memtable is not None
        written = flush_queue.advance(memtable.wal.written)
        while flush_queue.is_full:
            memtable.wal.flush(memtable.ring, state(), None)
            flush_queue.settle(memtable.wal.written, only_the_first=True)
            written = True
        if not written:
            return 0
        memtable.release(flush_queue.unwritten())
        oldest = None if self._size_bytes is None else flush_queue.oldest_within(self._size_bytes)
        return 0 if oldest is None else self.let_go(oldest)

    def let_go(self, live: int) -> int:
        """Hold nothing before a transition; returns how many episodes are not live any more."""
        gone = self.live_range.drop_before(live)
        self._flushing.forget(self.live_range.live)
        return gone

    def settle(self, state: State) -> None:
        """Write all episodes that have ended, and wait for it."""
        memtable, flush_queue = self.writable(), self._flushing
        flush_queue.seal(self.live_range.live)
        memtable.wal.flush(memtable.ring, state(), None)
        flush_queue.settle(memtable.wal.written)
        memtable.release(flush_queue.unwritten())

    def flush(self, state: State, known: ColdPriorities | None, *, pin: int, last: bool) -> dict[str, Any]:
        """Commit everything, and wait until it is on disk.

        Args:
            state: what is to be committed beside it.
            known: errors to be kept; None for none.
            pin: 0, or how many states one can come back to, from now on this one among them.
            last: write what has ended to the archive, and make the write-ahead log small.

        Returns:
            What was committed beside it and, where it is pinned, where in the directory it is.

        Raises:
            PersistenceError: it could not be written.
        """
        memtable, flush_queue = self.writable(), self._flushing
        if last or flush_queue.has_unlogged_episodes:
            flush_queue.seal(self.live_range.live)
        beside = state()
        memtable.wal.flush(memtable.ring, beside, None)
        flush_queue.settle(memtable.wal.written)
        memtable.release(flush_queue.unwritten())
        archive = flush_queue.archive

        def write() -> None:
            if pin or self.live_range.live > archive.live:
                archive.note(self.live_range.live, flush_queue.watermarks_on_disk(), pin=pin)
            archive.manifest.tell_zarr(self.folder, archive.next_row, self._durable)
            if known is not None:
                known.write(self.folder, self.live_range.next, self._durable)

        self._written(write)
        if last:
            closed: ClosedState = {
                "archive": archive.record,
                "file": archive.newest_file.name,
                "errors": None if known is None else known.checksum,
            }
            beside = beside | {"watermarks": flush_queue.watermarks_on_disk(), "closed": closed}
            memtable.wal.flush(memtable.ring, beside, None, new_file=True)
        if not pin:
            return beside
        memtable.wal.flush(memtable.ring, beside, None, pin=pin)
        return beside | {"position": dict(memtable.wal.position), "archive": dict(archive.record)}

    @property
    def position(self) -> EpisodePosition:
        """The last commit; of a directory that is only read, the last record alone."""
        if self.flush_queue is None:
            return nothing_on_disk()
        commit = nothing_on_disk()["position"] if self.memtable is None else self.memtable.wal.position
        return {"position": commit, "archive": self.flush_queue.archive.record}

    def pin(self, position: EpisodePosition) -> None:
        """Keep what is needed to roll back to a position, instead of what was pinned before.

        Raises:
            PersistenceError: the directory does not have it, or cannot be written.
        """
        memtable = self.writable()
        if self.flush_queue is None:
            return
        archive = self.flush_queue.archive
        live = archive.refuse_unless_there(position["archive"])
        memtable.wal.pin(position["position"])
        watermarks = self.flush_queue.watermarks_on_disk()
        self._written(lambda: archive.pin(position["archive"], live, watermarks))

    def reset(self, state: State) -> None:
        """Delete all episodes, and those that run."""
        self.settle(state)
        memtable, flush_queue, following = self.writable(), self._flushing, self.live_range.next
        memtable.reset()
        watermarks = memtable.start_rows.tolist()
        self._written(lambda: flush_queue.archive.begin_anew(watermarks, following))
        flush_queue.begin_anew()
        self.live_range.begin(following, following)

    def roll_back(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Restore a pinned state, with an empty flush queue; return what was committed beside it.

        Raises:
            PersistenceError: the directory does not have it, and nothing was changed; or it cannot be written, and goes
                back when it is opened again.
        """
        memtable = self.writable()
        self._flushing.archive.refuse_unless_there(state["archive"])
        memtable.wal.refuse_unless_there(state["position"])
        try:
            write_marker(self.folder, state, self._durable)
        except OSError as error:
            with self._or_let_go():
                remove_marker(self.folder, self._durable)
            raise PersistenceError(
                f"{self._owner}: {self.folder} cannot be written: {error}; it is as it was"
            ) from error
        return self._go_back(state)

    def _go_back(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._or_let_go():
            said = self.writable().roll_back(state["position"])
            self._flushing.archive.roll_back(state["archive"])
            self._flushing.begin_anew()
            remove_marker(self.folder, self._durable)
        return said

    @contextmanager
    def _or_let_go(self) -> Iterator[None]:
        """Close the directory after an error: the next process finishes the rollback."""
        try:
            yield
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise PersistenceError(
                f"{self._owner}: {self.folder} was going back to a checkpoint and cannot go on: {error}. Nothing more "
                f"is written there until the buffer is made again, which does the rest"
            ) from error

    def refresh(self) -> tuple[list[Segment], int] | None:
        """Read the segments that another process has written since the last call.

        Returns:
            New segments, and how many episodes are not live any more; None where what was there is something else now,
            because the other has rolled back.

        Raises:
            PersistenceError: the directory was closed.
            DamageError: something that was written is not what is read.
        """
        flush_queue = self._flushing
        if self._closed:
            raise PersistenceError(f"{self._owner}: {self.folder} was closed, and is not read any more; make it again")
        known, archive = (
            dict(flush_queue.segments),
            SegmentStore.beside_a_writer(self.folder, flush_queue.archive.manifest),
        )
        flush_queue.begin_anew(archive)
        now = flush_queue.segments
        same = {first for first, segment in known.items() if first in now and now[first].is_same_as(segment)}
        if any(segment.end > archive.live and first not in same for first, segment in known.items()):
            return None
        new = [segment for first, segment in sorted(now.items()) if first not in known]
        for segment in new:
            self.live_range.count(segment.first, segment.lengths.tolist())
        return new, self.let_go(archive.live)

    def look_back(self, state: Mapping[str, Any]) -> None:
        """Read a state of a directory to which another process writes.

        Raises:
            PersistenceError: it does not have it any more.
        """
        archive = SegmentStore.beside_a_writer(self.folder, self._flushing.archive.manifest)
        archive.look_back(state["archive"])
        self._flushing.begin_anew(archive)

    def state_read(self) -> dict[str, Any]:
        """Where in a directory that somebody else writes, as plain data."""
        return {"archive": dict(self._flushing.archive.record)}

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise PersistenceError(
                f"{self._owner}: {self.folder} cannot be written: {error}. What was committed there is safe; make "
                f"room, or give permission, and flush() again"
            ) from error

    # Out

    def episodes(self, layout: Layout, *, whole: bool) -> Iterator[Episode]:
        """All live episodes that have ended, or the whole ones of them, the oldest first, read segment by segment.

        Raises:
            DamageError: one cannot be read; the text names the file and the episodes.
        """
        if self.flush_queue is None:
            return
        live = self.live_range.live
        for first, segment in sorted(self.flush_queue.segments.items()):
            if segment.end > live:
                # Of one that another process drops meanwhile, nothing is left.
                with suppress(DroppedError):
                    batch = self.flush_queue.read(segment)
                    yield from episodes_since(live, first, batch, layout, whole=whole)
        for first, batch in list(self.flush_queue.open_batches()):
            yield from episodes_since(live, first, batch, layout, whole=whole)

    def state(self) -> dict[str, Any]:
        """Return what is to be committed beside steps, for :meth:`hold`."""
        flush_queue, following = self.flush_queue, self.live_range.next
        return {
            "live": self.live_range.live,
            "unwritten": following if flush_queue is None else flush_queue.first_unwritten(following),
            "watermarks": [] if flush_queue is None else flush_queue.watermarks_on_disk(),
        }

    @property
    def held(self) -> bool:
        """Whether it is this one that writes to the directory."""
        return self._lock is not None and self._lock.held

    @property
    def nbytes(self) -> int:
        """Bytes of memory of memtable and flush queue."""
        memtable = 0 if self.memtable is None else self.memtable.ring.columns.nbytes
        return memtable + (0 if self.flush_queue is None else self.flush_queue.nbytes)

    def close(self) -> None:
        """Release the directory, without writing."""
        self._closed = True
        try:
            if self.flush_queue is not None:
                self.flush_queue.close()
            if self.memtable is not None:
                self.memtable.wal.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @property
    def _flushing(self) -> FlushQueue:
        assert self.flush_queue is not None
        return self.flush_queue
