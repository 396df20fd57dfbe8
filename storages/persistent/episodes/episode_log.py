"""Persistence of a storage of episodes: recovery, commits, pins and rollback of its two logs."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypedDict

import torch

from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.ancestors import ancestors_from, holds_episodes, is_ancestor
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_manifest import GROUP, WAL_FOLDER, EpisodeManifest
from storages.persistent.episodes.episode_store import EpisodeStore
from storages.persistent.episodes.memory_plan import RUNNING_STEPS
from storages.persistent.episodes.memtable import Memtable
from storages.persistent.episodes.segment import Segment, flaw_of_record, segment_of
from storages.persistent.episodes.segment_log import segments_log
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.log.commit_log import Position
from storages.persistent.log.json_file import name_damage, name_owner
from storages.persistent.log.lock import Lock
from storages.persistent.log.notes import (
    ClosingNote,
    read_marker,
    remove_marker,
    remove_note,
    write_marker,
    write_note,
)
from storages.persistent.replay.ring_log import close_at_exit
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.write_ahead_log import WriteAheadLog
from storages.protocols import Environments, Loggable, StorageLog

LOG_FILE_BYTES = 4 << 20
"""Size of a log file of the memtable beyond which a new one begins; small, because the steps are soon in segments."""


class EpisodePosition(TypedDict):
    """Position in both logs of a directory of episodes, as plain data."""

    position: Position
    """Commit of the write-ahead log."""
    archive: Position
    """Commit of the log of segments."""


class EpisodicStorage(Loggable, Protocol):
    """The interface of a storage that the log needs; attributes are hyper-parameters of the same names."""

    commit_every: int
    ancestor: str | Path | None
    allow_nonfinite: bool
    stored_fields: ClassVar[frozenset[str] | None]

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that ``extra_state`` returned, and the episodes."""

    def close(self) -> None:
        """Release the directory."""


class EpisodeLog(StorageLog):
    """Commits a storage of episodes to a directory, and restores it when the storage is made again.

    The guarantees are those of :mod:`storages.persistent`.

    Args:
        storage: an empty storage, into which the content of the directory is restored.
        store: its episodes.
        envs: the environments; if None, the first sample determines how many there are.

    Raises:
        PersistenceError: the directory is in use, holds other files, or holds episodes of other observations.
        DamageError: the directory is damaged.
    """

    def __init__(self, storage: EpisodicStorage, store: EpisodeStore, envs: Environments | None) -> None:
        # Weak, so that a storage is garbage-collected, and closed, with its last other reference.
        self._storage, self._owner = weakref.ref(storage), type(storage).__name__
        self._store = store
        self._lock: Lock | None = None
        self._state_as_made = storage.extra_state()
        try:
            with name_owner(self._owner, store.folder, "; name another one"):
                self._open(storage, envs)
        except BaseException:
            self.release()
            raise
        close_at_exit(storage)

    # Opening

    def _open(self, storage: EpisodicStorage, envs: Environments | None) -> None:
        store, folder = self._store, self._store.folder
        manifest, plan, wal_folder = self._claim(storage.ancestor), None, folder / WAL_FOLDER
        num_envs, logged = None if envs is None else envs.num_envs, RingManifest.read(wal_folder)
        if manifest is not None:
            num = num_envs or (logged and logged.num_envs) or 1
            plan = store.budget.plan(manifest.layout, manifest.stacked, num)
        if not store.read_only:
            size = logged.size if logged else plan.running_steps if plan else RUNNING_STEPS
            stacked_frames = getattr(envs, "stacked_frames", 0)
            ring = Ring(size, self._owner, num_envs, storage.allow_nonfinite, stacked_frames=stacked_frames)
            ring.fields = storage.stored_fields
            wal = WriteAheadLog(wal_folder, self._owner, ring, storage.commit_every, store.durable, LOG_FILE_BYTES)
            store.memtable = Memtable(ring, wal)
        if manifest is None or plan is None:
            return
        store.begin(manifest, plan)
        with name_damage(folder):
            state = self._recover()
            # If read-only, the writer may replace the file of errors after the note was read.
            closed = None if store.read_only else ClosingNote.read(folder)
            as_closed = closed is not None and closed.position == store.queue.archive.record
            store.cache.cold = ColdPriorities.read(folder, closed.errors if closed and as_closed else None)
            storage.load_extra_state(self._as_recovered(state))

    def _as_recovered(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return a committed state; if there was no commit, the state in which the storage was made."""
        if state is not None:
            return dict(state)
        archive = self._store.queue.archive
        return self._state_as_made | {"live": archive.live, "unwritten": archive.end, "watermarks": archive.watermarks}

    def _claim(self, ancestor: str | Path | None) -> EpisodeManifest | None:
        """Lock the directory unless it is read-only; return its manifest, if there is one."""
        store, folder = self._store, self._store.folder
        if store.read_only:
            return manifest_to_read(folder)
        self._lock = EpisodeManifest.claim(folder, store.durable)
        return manifest_to_write(folder, None if ancestor is None else Path(ancestor).absolute(), store.durable)

    def _recover(self) -> dict[str, Any] | None:
        """Recover the memtable, and finish a rollback; return the state besides the steps, None if there is none."""
        store, folder = self._store, self._store.folder
        if store.memtable is None:
            return None
        state = store.memtable.wal.recover()
        # A marker exists if the last process that wrote here was killed during a rollback.
        unfinished = read_marker(folder)
        if unfinished is not None:
            try:
                self._refuse_unless_there(unfinished)
            except DamageError:
                raise
            except PersistenceError:
                remove_marker(folder, store.durable)
                raise
            return self._roll_back_logs(unfinished)
        return state

    # Commits

    def flush(self, storage: Loggable) -> None:
        """Commit everything, and wait until it is on disk; do nothing if the storage is read-only."""
        if not self._store.read_only:
            self._flush(storage)

    def _flush(self, storage: Loggable, pin: int = 0, last: bool = False) -> dict[str, Any]:
        """Commit everything, and wait until it is on disk.

        Args:
            storage: the storage, whose state is committed.
            pin: if not 0, pin this commit, and keep the newest ``pin`` pinned commits.
            last: write all finished episodes to segments, start a new log file, and write the closing note.

        Returns:
            The state and its position.
        """
        store, queue = self._store, self._store.flush_queue
        memtable = store.writable()
        if queue is None:
            return storage.extra_state() | self.position
        archive, live_range, known = queue.archive, store.live_range, store.cache.collect_errors()
        state = store.settle(
            lambda: storage.extra_state() | {"memory": store.cache.state()}, last or queue.has_unlogged_episodes
        )

        def write() -> None:
            if pin or live_range.live > archive.live:
                pinned = archive.log.with_pin(live_range.live, pin) if pin else None
                archive.note(live_range.live, queue.watermarks_on_disk, pinned=pinned)
            archive.manifest.write_zarr_metadata(store.folder, archive.next_row, store.durable)
            if known is not None:
                remove_note(store.folder, store.durable)
                known.write(store.folder, live_range.next, store.durable)
            if last:
                write_note(store.folder, archive.log, store.durable, None if known is None else known.checksum)

        store.written(write)
        if last:
            state = state | {"watermarks": queue.watermarks_on_disk}
            memtable.wal.flush(state, None, new_file=True)
        if pin:
            memtable.wal.flush(state, None, pin=pin)
        return state | self.position

    @property
    def position(self) -> EpisodePosition:
        """Position of the last commit; if the storage is read-only, of the log of segments alone."""
        store, nothing = self._store, Position(commit=0, checksum=0)
        if store.flush_queue is None:
            return {"position": nothing, "archive": nothing}
        logged = nothing if store.memtable is None else store.memtable.wal.position
        return {"position": logged, "archive": store.flush_queue.archive.record}

    def pin(self, storage: Loggable, position: EpisodePosition) -> None:
        """Pin a commit instead of those pinned before: keep what a rollback to it needs."""
        memtable, queue = self._store.writable(), self._store.flush_queue
        if queue is None:
            return
        archive, commit = queue.archive, position["archive"]["commit"]
        pinned = [[commit, archive.refuse_unless_there(position["archive"])]] if commit else []
        memtable.wal.pin(position["position"])
        self._store.written(lambda: archive.note(archive.live, queue.watermarks_on_disk, pinned=pinned))
        self._flush(storage)

    def save(self, storage: Loggable) -> dict[str, Any]:
        """Commit and pin everything, unless read-only; return the position, the state and all errors."""
        store = self._store
        if store.read_only:
            store.cache.collect_errors()
            state = storage.extra_state() | {"memory": store.cache.state(), "archive": self.position["archive"]}
        else:
            state = self._flush(storage, pin=storage.states_kept)
        live = store.live_range.live
        count = 0 if storage.priorities is None else store.live_range.next - live
        return state | {"errors": torch.from_numpy(store.cache.cold.get(live, count)), "errors_first": live}

    def roll_back(self, position: Mapping[str, Any]) -> dict[str, Any]:
        """Roll back to a commit, and return the state besides its episodes.

        Args:
            position: position of the commit, or all that :meth:`save` returned, which includes the errors to restore.

        Raises:
            PersistenceError: the directory does not have the commit, and nothing was changed; or a write failed, and
                the rollback is finished when the directory is opened again.
        """
        store, cache, storage = self._store, self._store.cache, self._storage()
        assert storage is not None
        saved = dict(position) if "generator" in position else None
        if store.read_only:
            archive = SegmentStore.beside_a_writer(store.folder, store.queue.archive.manifest)
            archive.roll_back(position["archive"])
            store.queue.restart(archive)
            state = storage.extra_state() | {"live": archive.live, "unwritten": archive.end}
        else:
            store.writable()
            if store.flush_queue is None:
                return saved or storage.extra_state()
            store.settle(storage.extra_state, seal=True)
            self._refuse_unless_there(position)
            self._mark(position)
            state = self._as_recovered(self._roll_back_logs(position))
        if saved is None:
            cache.collect_errors()
            cache.cold = cache.cold.since(store.queue.archive.live)
            return state
        cache.cold = ColdPriorities(position["errors_first"])
        cache.cold.put(position["errors_first"], position["errors"].numpy())
        return saved

    def _mark(self, position: Mapping[str, Any]) -> None:
        folder, durable = self._store.folder, self._store.durable
        with name_owner(self._owner, folder, "; it is unchanged"):
            try:
                write_marker(folder, position, durable)
            except OSError:
                with self._or_release():
                    remove_marker(folder, durable)
                raise

    def _refuse_unless_there(self, position: Mapping[str, Any]) -> None:
        self._store.queue.archive.refuse_unless_there(position["archive"])
        self._store.writable().wal.refuse_unless_there(position["position"])

    def _roll_back_logs(self, position: Mapping[str, Any]) -> dict[str, Any] | None:
        store = self._store
        with self._or_release():
            state = store.writable().roll_back(position["position"])
            store.queue.archive.roll_back(position["archive"])
            store.queue.restart(store.queue.archive)
            remove_marker(store.folder, store.durable)
        return state

    @contextmanager
    def _or_release(self) -> Iterator[None]:
        """Release the directory after an error; the rollback is finished when it is opened again."""
        try:
            yield
        except BaseException as error:
            self.release()
            if not isinstance(error, OSError):
                raise
            raise PersistenceError(
                f"{self._owner}: the rollback of {self._store.folder} to a checkpoint was interrupted: {error}. "
                f"Nothing more is written there until the buffer is made again, which completes it"
            ) from error

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Refuse to replace rows."""
        if rows:
            raise ValueError(
                f"{self._owner}: stored transitions cannot be replaced, because segments are immutable; add_episode() "
                f"stores a changed episode as another one"
            )

    def close(self, storage: Loggable) -> None:
        """Commit everything and release the directory."""
        try:
            if self._lock is not None and self._lock.held:
                self._flush(storage, last=True)
        finally:
            self.release()

    def release(self) -> None:
        """Release the directory, without writing."""
        try:
            self._store.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of memtable and flush queue."""
        return self._store.nbytes


def manifest_to_read(directory: Path) -> EpisodeManifest:
    """Return the manifest of a directory to which another process writes.

    Raises:
        PersistenceError: there is none.
    """
    manifest = EpisodeManifest.read(directory)
    if manifest is None:
        raise PersistenceError(f"{directory} holds no episodes yet, and read_only=True writes none")
    return manifest


def manifest_to_write(directory: Path, ancestor: Path | None, durable: bool) -> EpisodeManifest | None:
    """Return the manifest of a directory; None if there is none yet, and the first transition will determine it.

    Args:
        directory: the directory, which must exist.
        ancestor: directory that a new one continues, from the ancestor's present last commit; None for no ancestor.
        durable: fsync a new manifest.

    Raises:
        PersistenceError: the directory continues another ancestor, or the ancestor holds no episodes.
        OSError: a new manifest cannot be written.
    """
    manifest = EpisodeManifest.read(directory)
    if ancestor is None:
        return manifest
    if manifest is not None:
        return _with_ancestor(directory, manifest, ancestor, durable)
    older = EpisodeManifest.read(ancestor)
    if older is None:
        raise PersistenceError(f"the ancestor {ancestor} holds no episodes")
    record = SegmentStore(ancestor, older, read_only=True).record
    ancestors = tuple(ancestors_from(directory, ancestor, older, record["commit"], record["checksum"]))
    manifest = EpisodeManifest.made(older.layout, older.stacked, older.segment_rows, ancestors)
    manifest.write(directory, durable)
    return manifest


def _with_ancestor(directory: Path, manifest: EpisodeManifest, ancestor: Path, durable: bool) -> EpisodeManifest:
    """Return the manifest of a directory, with another place of its ancestor if that is named.

    Raises:
        PersistenceError: another directory is named.
    """
    nearest = manifest.ancestors[0] if manifest.ancestors else None
    if nearest is not None and nearest.directory == str(ancestor):
        return manifest
    if nearest is None or not is_ancestor(ancestor, nearest, _recorded(directory, manifest)):
        there = "none" if nearest is None else f"{nearest.directory}, or where that was moved"
        why = "" if holds_episodes(ancestor) else ", which holds no episodes"
        raise PersistenceError(
            f"the ancestor of {directory} is {there}, not {ancestor}{why}; name that one, or a new directory"
        )
    manifest = manifest.with_ancestor_in(ancestor, directory)
    manifest.write(directory, durable)
    return manifest


def _recorded(directory: Path, manifest: EpisodeManifest) -> list[Segment]:
    """Return the segments of the nearest ancestor that the log of a directory records."""
    walked = segments_log(directory, durable=False).walk(lambda record: flaw_of_record(record, manifest))
    records = (one[0].record for one in walked if not isinstance(one, str))
    segments = (segment_of(record, directory / GROUP) for record in records)
    return [segment for segment in segments if segment is not None and segment.ancestor == 1]
