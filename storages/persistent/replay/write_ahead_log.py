"""The write-ahead log of a ring: commits to disk of what is inserted in memory.

A directory holds ``storage.json`` (what is kept there), ``lock`` (who writes), and a log, each record of which is a
commit: the steps since the one before, the errors that updates gave in between, and everything else of the storage that
is not a matter of single transitions. So all records up to any one of them are the storage as it was then.

What is committed is read from the ring while the next steps come in: at most two thirds as many steps as the ring holds
are on their way at a time, and it overwrites the oldest; they are waited for when as many as it holds are not on disk.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.core.sampling.prioritized import Priorities
from storages.errors import PersistenceError
from storages.persistent.log.commit_log import CommitLog, Position
from storages.persistent.log.json_file import name_damage, name_owner, name_repair
from storages.persistent.log.notes import refuse_missing, remove_note, write_note
from storages.persistent.log.records import Record
from storages.persistent.replay.recovery import SUFFIX, recover
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import CHANGES, OFFSETS

LOG_FILE_BYTES = 64 << 20
"""A file that is longer is not continued."""
_LARGEST_COMMIT_BYTES = 64 << 20
"""Of steps that are larger, fewer are committed at a time."""
LONGEST_LOG_BYTES, _LONGEST_LOG_RINGS = 64 << 20, 4
"""Where there are priorities, a log that is longer, and longer than so many times the ring, begins anew."""


class WriteAheadLog:
    """Commits a ring to a directory, and restores it.

    Args:
        directory: made if it does not exist.
        owner: the storage's name, for errors.
        ring: the storage's, still empty.
        commit_every: steps that are on their way to the disk at most.
        durable: whether commits survive a power cut.
        log_file_bytes: a file that is longer is not continued; :data:`LOG_FILE_BYTES` where None.

    Raises:
        PersistenceError: the directory is in use, is something else, or holds another storage.
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
        """A commit that is being written beside the insertions."""
        self._failed = False
        """Whether the last commit could not be written."""
        self._is_cut = False
        """Whether nothing on disk is newer than what the storage is as of."""
        self._errors_on_their_way = False
        """Whether errors were taken from the priorities that are not on disk."""
        self._commit_every = commit_every
        self.due = 0
        """Before which step to call :meth:`commit_soon`."""
        self._next_commit = 0
        """Before which step a commit is to be made."""
        self.written = 0
        """The number after the newest step that is on disk."""

    # Back into memory

    def recover(self) -> dict[str, Any] | None:
        """Recover the ring, and drop a torn commit; return the state beside the ring.

        Raises:
            DamageError: something is not what was written; the text names file and steps.
        """
        state = self._recover(None)
        with name_owner(self._owner, self.directory):
            self._cut()
        return state

    def refuse_unless_there(self, position: Position) -> None:
        """Raise what :meth:`roll_back` would raise before it changes anything."""
        self._refuse_unless_held()
        self.wait()
        if position["commit"]:
            self._commit_at(position)

    def roll_back(self, position: Position, at_once: bool = False) -> dict[str, Any] | None:
        """Restore a commit; later ones are dropped, on disk ``at_once`` or before the next commit.

        Raises:
            PersistenceError: the directory does not have it; nothing was dropped.
            DamageError: something is not what was written; the text names file and steps.
            OSError: not everything could be dropped ``at_once``.
        """
        self.refuse_unless_there(position)
        with name_owner(self._owner, self.directory):
            remove_note(self.directory, self._durable)
        self._ring.reset()
        if not position["commit"]:
            self._ring.steps = self._ring.first = 0
        state = self._recover(position["commit"])
        try:
            self._cut()
        except OSError:
            # It is tried again, and said, before anything else is written.
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
        return state

    def _cut(self) -> None:
        """Drop what is newer than the present commit."""
        self._log.cut()
        self._is_cut = True

    # What is committed

    @property
    def position(self) -> Position:
        """The last commit, once it is on disk."""
        self._wait()
        return self._log.position.copy()

    def commit_soon(self, state: Callable[[], dict[str, Any]], priorities: Priorities | None) -> None:
        """Wait for the commit that is being written and, if it is time, begin the next one.

        Raises:
            PersistenceError: that one, or this one, could not be written.
        """
        ring = self._ring
        self._refuse_unless_held()
        self._wait()
        if not ring.layout:
            return
        # As many are missing then as may be: where an interruption has kept a commit from being begun, it has to wait.
        most = min(self._commit_every, ring.size)
        latest = self.written + most
        if ring.steps < min(self._next_commit, latest):
            self.due = min(self._next_commit, latest)
            return
        record, manifest = self._snapshot(state(), priorities, self._log.pinned, everything=False)
        # The more steps in a commit, the less each costs; the fewer, the longer the disk may take until it is waited
        # for, which is when as many are not there as may be missing.
        largest = _LARGEST_COMMIT_BYTES // max(1, ring.bytes_of_a_step)
        steps = max(1, min(most * 2 // 3, largest))
        # Before the thread begins: where it fails at once, it says that the next commit is due now.
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
            state: of the storage, beside the ring.
            priorities: the storage's, if it has any.
            pin: 0, or how many commits that checkpoints refer to stay usable, from now on this one among them.
            new_file: write all that is needed into a new file, so that older files are dropped unless checkpoints
                refer to them.

        Raises:
            PersistenceError: it could not be written.
        """
        self._refuse_unless_held()
        self.wait()
        if self._ring.layout:
            pinned = self._log.with_pin(self._ring.needed, pin) if pin else self._log.pinned
            self._write(*self._snapshot(state, priorities, pinned, everything=new_file))

    def pin(self, position: Position) -> None:
        """Keep what a commit needs, and no longer what those pinned before need; written with the next commit.

        Raises:
            PersistenceError: the directory does not have it.
        """
        self.wait()
        commit = position["commit"]
        self._log.pinned = [[commit, self._commit_at(position).facts["needed"]]] if commit else []

    def changed(self) -> None:
        """Invalidate the log: the next commit is a full snapshot."""
        self.written = self.due = self._next_commit = 0

    def wait(self) -> None:
        """Wait for the commit that is being written; if it fails, the next commit tries it again, and says it."""
        try:
            self._wait()
        except PersistenceError:
            assert self._failed

    def close(self) -> None:
        """Release the directory, without a commit.

        Raises:
            PersistenceError: a file could not be closed; the directory is released all the same.
        """
        try:
            self._executor.shutdown()
            self._log.files.close()
            if self._lock.held and self._is_cut and not self._failed:
                write_note(self.directory, self._log, self._durable)
        except OSError as error:
            raise PersistenceError(
                f"{self._owner}: a file in {self.directory} could not be closed: {error}; what was written to it last "
                f"may be missing there"
            ) from error
        finally:
            self._lock.release()
            self.due = 0

    @property
    def closed(self) -> bool:
        """Whether nothing can be committed any more: after :meth:`close`, or in a process that was forked off."""
        return not self._lock.held

    def __getstate__(self) -> dict[str, Any]:
        raise PersistenceError(
            f"{self._owner}: a storage with a directory cannot be copied or sent, as one writes there at a time; copy "
            f"or send its factory, or make one without a directory of what storages.persistent.read_state reads there"
        )

    # Inside

    def _snapshot(
        self, state: dict[str, Any], priorities: Priorities | None, pinned: list[list[int]], everything: bool
    ) -> tuple[Record, RingManifest]:
        """Return what is not on disk, or all that is needed, as a commit that may begin a file, and its manifest.

        No commit may be being written.
        """
        ring, log, manifest = self._ring, self._log, RingManifest.of(self._ring)
        needed = ring.needed
        # A file says of which size the ring is whose steps it holds.
        new_file = everything or manifest != self._manifest or log.is_full(self._log_file_bytes or LOG_FILE_BYTES)
        if new_file and priorities is not None:
            # Errors of a step change again and again, and changes stay in the log for as long as the step does.
            most_bytes = LONGEST_LOG_BYTES + _LONGEST_LOG_RINGS * ring.live_steps * ring.bytes_of_a_step
            with suppress(OSError):
                everything |= log.bytes_since(needed) > most_bytes
        part = ring.snapshot(needed if everything else max(self.written, needed))
        facts = log.next_facts(needed, pinned, part.begins)
        facts |= {"state": state, "since": part.since, "start": ring.start}
        if new_file:
            facts["manifest"] = manifest.facts()
        arrays = part.arrays
        if priorities is not None:
            offsets, changes = priorities.changes(everything=self._errors_on_their_way)
            self._errors_on_their_way = True
            arrays = arrays | {ArrayKey(ERRORS): (priorities.errors(part.first),), ArrayKey(CHANGES): (changes,)}
            if offsets is not None:
                arrays[ArrayKey(OFFSETS)] = (offsets,)
        return Record(log.position["commit"] + 1, part.first, part.steps, facts, arrays), manifest

    def _is_quick(self, record: Record) -> bool:
        """Whether a commit is copied to the system's cache in less time than it takes to hand it to a thread."""
        return record.small and self._is_cut and not self._durable and not record.begins_file

    def _write(self, record: Record, manifest: RingManifest) -> None:
        """Called by one thread at a time."""
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
            if record.begins_file:
                log.drop_unneeded(record.facts["needed"])
        except BaseException as error:
            self._failed = True
            # The next insertion raises the error.
            self.due = self._next_commit = 0
            if log.position["commit"] == record.commit:
                self.written = record.steps
            elif end not in (None, log.files.end):
                # The next commit has the same number.
                log.files.take_back(end)
            if not isinstance(error, OSError):
                raise
            safe = (
                "What was committed there is gone, but in memory still"
                if isinstance(error, FileNotFoundError)
                else f"Steps before {self.written} are safe there, those from {self.written} to {record.steps} are in "
                f"memory alone; make room, or give permission, and insert or flush() again"
            )
            raise PersistenceError(
                f"{self._owner}: {self.directory} cannot be written: {error}. {safe}. insert_data_slice("
                f"get_all_buffer_data()) takes it to a storage with another directory"
            ) from error

    def _commit_at(self, position: Position) -> Record:
        with name_owner(self._owner, self.directory, does="read"):
            return self._log.commit_at(position, self._log.oldest_row)

    def _refuse_unless_held(self) -> None:
        if not self._lock.held:
            raise PersistenceError(
                f"{self._owner}: {self.directory} is not this storage's any more: it was closed, or this process was "
                f"forked from the one that has it; make a storage with another directory"
            )
        if self._lock.lost:
            raise PersistenceError(
                f"{self._owner}: the file lock in {self.directory} was deleted or replaced, so another process may "
                f"write there, and nothing more is written by this one. insert_data_slice(get_all_buffer_data()) takes "
                f"what is in memory to a storage with another directory"
            )

    def _wait(self) -> None:
        if self._writing is not None:
            # After an interruption, by Ctrl-C, the commit is still being written.
            wait([self._writing])
            writing, self._writing = self._writing, None
            writing.result()
