"""Write-ahead log of a ring: incremental commits to disk of the steps that are inserted in memory.

A directory holds ``storage.json`` (the manifest), ``lock`` (the process that writes), and a log. Each record of the log
is a commit: the steps since the previous one, the priority errors that changed since, and the state of the storage that
does not belong to single transitions. The records up to a commit therefore restore the storage as it was then.
Recurrent states that updates have replaced are in the commits of :meth:`WriteAheadLog.flush` alone, which checkpoints
refer to: see :mod:`storages.persistent.replay.replaced_states`.

A background thread writes a commit from the memory of the ring while further steps are inserted. A commit is due after
at most two thirds of ``commit_every`` steps, or of the ring's size if that is smaller. An insertion waits before it
would overwrite a row that is not on disk.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.core.sampling.prioritized import Priorities
from storages.errors import PersistenceError
from storages.open_files import remedy_of
from storages.persistent.log.commit_log import CommitLog, Position
from storages.persistent.log.json_file import name_damage, name_owner, name_repair
from storages.persistent.log.notes import refuse_missing, remove_note, write_note
from storages.persistent.log.records import Record
from storages.persistent.replay.recovery import SUFFIX, recover
from storages.persistent.replay.replaced_states import ReplacedStates
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import CHANGES, NEWER_STATES, OFFSETS

LOG_FILE_BYTES, _SMALLEST_LOG_FILE_BYTES = 64 << 20, 16 << 10
"""Size of a log file beyond which the next commit begins a new one; half of a smaller ring, but not below the second.

A file is deleted as a whole, once no step in it is needed.
"""
_LARGEST_COMMIT_BYTES = 64 << 20
"""Size beyond which a commit holds fewer steps, or fewer replaced states."""
LONGEST_LOG_BYTES, _LONGEST_LOG_RINGS = 64 << 20, 4
"""A log with priorities or replaced states is replaced by a full snapshot where it is longer than these bytes plus this
multiple of the ring."""
_LONGEST_LOG_OF_SMALL = 1.5
"""The multiple of a ring smaller than :data:`LONGEST_LOG_BYTES`, whose snapshots are quick, without these bytes."""


class WriteAheadLog:
    """Commits a ring to a directory, and restores it.

    Args:
        directory: created if it does not exist.
        owner: the storage's name, for errors.
        ring: the storage's ring, still empty.
        commit_every: the most steps that may not be on disk yet.
        durable: whether commits survive a power cut.
        log_file_bytes: size of a log file beyond which the next commit begins a new one; :data:`LOG_FILE_BYTES`, or
            less for a small ring, if None.

    Raises:
        PersistenceError: the directory is in use, holds other files, or holds another storage.
    """

    def __init__(
        self,
        directory: Path,
        owner: str,
        ring: Ring,
        commit_every: int,
        durable: bool,
        log_file_bytes: int | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self._log_file_bytes = log_file_bytes
        self._owner, self._ring, self._durable = owner, ring, durable
        with name_owner(owner, self.directory, "; name another one"):
            self._lock = RingManifest.claim(self.directory, durable)
        self._log = CommitLog(self.directory, SUFFIX, durable)
        try:
            self._manifest = RingManifest.read(self.directory)
            if self._manifest is not None:
                with name_damage(self.directory / RingManifest.name):
                    self._manifest.prepare(ring, self.directory, self._log.files.nbytes)
        except BaseException:
            self._lock.release()
            raise
        self._executor = ThreadPoolExecutor(1, "commits")
        self._writing: Future[None] | None = None
        """The commit that the background thread is writing."""
        self._failed = False
        """Whether the last commit could not be written."""
        self._is_cut = False
        """Whether the log on disk is truncated to the commit that the storage was restored from."""
        self._errors_on_their_way = False
        """Whether changed errors were taken from the priorities, but may not be on disk; the next commit takes all."""
        self.replaced = ReplacedStates(ring)
        """Steps on disk whose recurrent states are newer in memory."""
        self._commit_every = commit_every
        self.due = 0
        """Number of steps at which :meth:`commit_soon` must be called before the next insertion."""
        self._next_commit = 0
        """Number of steps at which the next commit is made."""
        self.written = 0
        """Number after the newest step that is on disk."""

    # Recovery

    def recover(self) -> dict[str, Any] | None:
        """Recover the ring, and truncate a torn commit; return the state besides the ring.

        Raises:
            DamageError: the log is damaged; the text names the file and the steps.
        """
        state = self._recover(None)
        with name_owner(self._owner, self.directory):
            self._cut()
        return state

    def refuse_unless_there(self, position: Position) -> None:
        """Raise the PersistenceError of :meth:`roll_back` if the directory does not have a commit."""
        self._refuse_unless_held()
        self.wait()
        if position["commit"]:
            self._commit_at(position)

    def roll_back(self, position: Position, at_once: bool = False) -> dict[str, Any] | None:
        """Restore a commit and drop later ones; return the state besides the ring.

        Args:
            position: the commit.
            at_once: raise an error if the log cannot be truncated now, rather than retry before the next commit.

        Raises:
            PersistenceError: the directory does not have the commit; nothing was dropped.
            DamageError: the log is damaged; the text names the file and the steps.
            OSError: the log could not be truncated ``at_once``.
        """
        self.refuse_unless_there(position)
        with name_owner(self._owner, self.directory):
            remove_note(self.directory, self._durable)
        ring = self._ring
        ring.reset()
        if ring.size < ring.full_size:
            # Earlier commits may hold more steps.
            ring.prepare(ring.layout, ring.envs, ring.full_size)
        if not position["commit"]:
            ring.steps = ring.first = 0
        state = self._recover(position["commit"])
        try:
            self._cut()
        except OSError:
            # The next commit tries it again, and raises an error if it fails.
            self._failed = True
            if at_once:
                raise
        return state

    def _recover(self, until: int | None) -> dict[str, Any] | None:
        log = CommitLog(self.directory, SUFFIX, self._durable)
        folder = self.directory
        with name_owner(self._owner, folder, does="read"), name_repair(folder), name_damage(folder):
            state = recover(self._ring, log, until) if self._ring.layout else None
            if until is None:
                refuse_missing(folder, log)
        self._log.files.close()
        self._log = log
        self._failed, self._errors_on_their_way = False, True
        self.written = self._ring.steps
        self.due = self._next_commit = 0
        self._is_cut = False
        self.replaced.forget()
        return state

    def _cut(self) -> None:
        """Truncate the log after the commit that the storage was restored from."""
        self._log.cut()
        self._is_cut = True

    # Commits

    @property
    def position(self) -> Position:
        """Position of the last commit, after waiting until it is on disk."""
        self._wait()
        return self._log.position.copy()

    def commit_soon(self, state: Callable[[], dict[str, Any]], priorities: Priorities | None) -> None:
        """Wait for the commit in progress and, if the next one is due, begin it.

        Raises:
            PersistenceError: one of the two could not be written.
        """
        ring = self._ring
        self._refuse_unless_held()
        self._wait()
        if not ring.layout:
            return
        # At ``latest`` steps, a commit that was delayed, by Ctrl-C for example, is written synchronously.
        most = min(self._commit_every, ring.size)
        latest = self.written + most
        if ring.steps < min(self._next_commit, latest):
            self.due = min(self._next_commit, latest)
            return
        record, manifest = self._snapshot(state(), priorities, self._log.pinned, everything=False)
        # More steps in a commit cost less each; fewer steps leave the disk more time before an insertion has to wait,
        # which it does when ``most`` steps are not on disk.
        largest = _LARGEST_COMMIT_BYTES // max(1, ring.columns.bytes_of_a_step)
        steps = max(1, min(most * 2 // 3, largest))
        # Before the thread starts: if its write fails, it sets both to 0.
        self._next_commit = ring.steps + steps
        self.due = min(self._next_commit, record.first + most)
        if self._failed or ring.steps >= latest or self._is_quick(record):
            self._write(record, manifest)
            self.due = self._next_commit
        else:
            self._writing = self._executor.submit(self._write, record, manifest)

    def flush(self, state: dict[str, Any], priorities: Priorities | None, pin: int = 0, new_file: bool = False) -> None:
        """Commit everything, and wait until it is on disk.

        Args:
            state: state of the storage besides the ring.
            priorities: the storage's priorities, if it has any.
            pin: if not 0, pin this commit, and keep the newest ``pin`` pinned commits.
            new_file: write a full snapshot to a new file, so that older files are deleted unless a pinned commit
                needs them.

        Raises:
            PersistenceError: the commit could not be written.
        """
        self._refuse_unless_held()
        self.wait()
        if not self._ring.layout:
            return
        # Several commits bound the memory that copies of states take, and the size of a log file.
        while len(newer := self.replaced.before(max(self.written, self._ring.needed))) > self._most_states:
            few = newer[: self._most_states]
            self._write(*self._snapshot(state, priorities, self._log.pinned, everything=new_file, newer=few))
        pinned = self._log.with_pin(self._ring.needed, pin) if pin else self._log.pinned
        self._write(*self._snapshot(state, priorities, pinned, everything=new_file, newer=newer))

    def pin(self, position: Position) -> None:
        """Pin a commit instead of those pinned before; the next commit writes the change.

        Raises:
            PersistenceError: the directory does not have the commit.
        """
        self.wait()
        commit = position["commit"]
        self._log.pinned = [[commit, self._commit_at(position).facts["needed"]]] if commit else []

    def changed(self) -> None:
        """Invalidate the log: the next commit is a full snapshot."""
        self.written = self.due = self._next_commit = 0

    def wait(self) -> None:
        """Wait for the commit in progress; if it failed, the next commit retries it, and may raise an error."""
        try:
            self._wait()
        except PersistenceError:
            assert self._failed

    def close(self) -> None:
        """Release the directory, without a commit.

        Raises:
            PersistenceError: a file could not be closed; the directory is released nevertheless.
        """
        try:
            self._executor.shutdown()
            self._log.files.close()
            if self._lock.held and self._is_cut and not self._failed:
                write_note(self.directory, self._log, self._durable)
        except OSError as error:
            raise PersistenceError(
                f"{self._owner}: a file in {self.directory} could not be closed: {error}; the last writes to it may "
                f"be lost"
            ) from error
        finally:
            self._lock.release()
            self.due = 0

    @property
    def closed(self) -> bool:
        """Whether the directory was released: after :meth:`close`, or in a forked process."""
        return not self._lock.held

    def __getstate__(self) -> dict[str, Any]:
        raise PersistenceError(
            f"{self._owner}: a storage with a directory cannot be copied or sent, because one process writes there "
            f"at a time; copy or send its factory, or load what storages.persistent.read_state reads there into a "
            f"storage without a directory"
        )

    # Inside

    def _snapshot(
        self,
        state: dict[str, Any],
        priorities: Priorities | None,
        pinned: list[list[int]],
        everything: bool,
        newer: NDArray[np.int64] | None = None,
    ) -> tuple[Record, RingManifest]:
        """Return a commit of what is not on disk, or of ``everything``, and the present manifest.

        Call this only while no commit is in progress.

        Args:
            state: state of the storage besides the ring.
            priorities: the storage's priorities, if it has any.
            pinned: commits to which checkpoints refer.
            everything: write a full snapshot to a new file.
            newer: (N,), transitions on disk whose replaced states the commit holds, too.
        """
        ring, log, manifest = self._ring, self._log, RingManifest.of(self._ring)
        needed = ring.needed
        # The manifest at the beginning of each file holds the size of the ring.
        new_file = everything or manifest != self._manifest or log.is_full(self._most_file_bytes)
        if new_file and (priorities is not None or self.replaced.any_so_far):
            # Errors and states of a step change many times, and all changes stay in the log as long as the step does.
            with suppress(OSError):
                everything |= log.bytes_since(needed) > self._most_log_bytes
        part = ring.snapshot(needed if everything else max(self.written, needed))
        facts = log.next_facts(needed, pinned, part.begins)
        facts |= {"state": state, "since": part.since, "start": ring.start}
        facts |= {"size": ring.size} if ring.size < ring.full_size else {}
        if new_file:
            facts["manifest"] = manifest.facts()
        arrays = part.arrays
        if newer is not None and not part.begins:
            arrays = arrays | self.replaced.arrays(newer)
        if priorities is not None:
            offsets, changes = priorities.changes(everything=self._errors_on_their_way)
            self._errors_on_their_way = True
            arrays = arrays | {ArrayKey(ERRORS): (priorities.errors(part.first),), ArrayKey(CHANGES): (changes,)}
            if offsets is not None:
                arrays[ArrayKey(OFFSETS)] = (offsets,)
        return Record(log.position["commit"] + 1, part.first, part.steps, facts, arrays), manifest

    @property
    def _most_file_bytes(self) -> int:
        of_the_ring = self._ring.size * self._ring.columns.bytes_of_a_step
        return self._log_file_bytes or min(LOG_FILE_BYTES, max(_SMALLEST_LOG_FILE_BYTES, of_the_ring // 2))

    @property
    def _most_states(self) -> int:
        """The most replaced states that one commit holds."""
        layout = self._ring.layout.get(NEWER_STATES.leaf)
        return 1 if layout is None else max(1, _LARGEST_COMMIT_BYTES // max(1, layout.count * layout.dtype.itemsize))

    @property
    def _most_log_bytes(self) -> float:
        stored, whole = (
            steps * self._ring.columns.bytes_of_a_step for steps in (self._ring.live_steps, self._ring.size)
        )
        if whole < LONGEST_LOG_BYTES:
            return _LONGEST_LOG_OF_SMALL * max(whole, 2 * _SMALLEST_LOG_FILE_BYTES)
        return LONGEST_LOG_BYTES + _LONGEST_LOG_RINGS * stored

    def _is_quick(self, record: Record) -> bool:
        """Return whether writing to the page cache takes less time than submitting the commit to a thread."""
        return record.small and self._is_cut and not self._durable and not record.begins_file

    def _write(self, record: Record, manifest: RingManifest) -> None:
        """Write a commit; called by one thread at a time."""
        log, end = self._log, None
        try:
            if not self._is_cut:
                self._cut()
            end = log.files.end
            if manifest != self._manifest:
                manifest.write(self.directory, self._durable)
                self._manifest = manifest
            log.append(record)
            self._failed = self._errors_on_their_way = False
            self.written = record.steps
            self.replaced.written(record)
            if record.begins_file:
                log.drop_unneeded(record.facts["needed"])
        except BaseException as error:
            self._failed = True
            # The next insertion raises the error.
            self.due = self._next_commit = 0
            if log.position["commit"] == record.commit:
                self.written = record.steps
            elif end not in (None, log.files.end):
                # The next commit reuses the number.
                log.files.undo_write(end)
            if not isinstance(error, OSError):
                raise
            safe = (
                "What was committed there is lost, but still in memory"
                if isinstance(error, FileNotFoundError)
                else f"Steps before {self.written} are safe there, those from {self.written} to {record.steps} are in "
                f"memory only; {remedy_of(error)}, and insert or flush() again"
            )
            raise PersistenceError(
                f"{self._owner}: {self.directory} cannot be written: {error}. {safe}. insert_data_slice("
                f"get_all_buffer_data()) copies it to a storage with another directory"
            ) from error

    def _commit_at(self, position: Position) -> Record:
        with name_owner(self._owner, self.directory, does="read"):
            return self._log.commit_at(position, self._log.oldest_row)

    def _refuse_unless_held(self) -> None:
        if not self._lock.held:
            raise PersistenceError(
                f"{self._owner}: {self.directory} is no longer held by this storage: it was closed, or this process "
                f"was forked from the one that holds it; make a storage with another directory"
            )
        if self._lock.lost:
            raise PersistenceError(
                f"{self._owner}: the file lock in {self.directory} was deleted or replaced, so another process may "
                f"write there, and nothing more is written by this one. insert_data_slice(get_all_buffer_data()) "
                f"copies what is in memory to a storage with another directory"
            )

    def _wait(self) -> None:
        if self._writing is not None:
            # After an interruption, by Ctrl-C, the commit is still being written.
            wait([self._writing])
            writing, self._writing = self._writing, None
            writing.result()
