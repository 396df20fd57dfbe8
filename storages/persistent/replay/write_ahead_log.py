"""The write-ahead log of a ring: commits to disk of what is inserted in memory.

A directory holds ``storage.json`` (what is kept there), ``lock`` (who writes), and two logs: of steps, each record of
which is a commit, and, where there are priorities, of the errors that updates gave, written before the steps of the
same commit. A commit holds the steps since the one before, and everything else of the storage that is not a matter of
single transitions, so that all records up to any one of them are the storage as it was then.

What is committed is read from the ring while the next steps come in: at most two thirds as many steps as the ring holds
are on their way at a time, and it overwrites the oldest; they are waited for when as many as it holds are not on disk.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.core.sampling.prioritized import Priorities
from storages.errors import DamageError, PersistenceError
from storages.persistent.log.closing_note import refuse_missing, remove_note, write_note
from storages.persistent.log.commit_log import CommitLog, Position
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.lock import Lock
from storages.persistent.log.log_files import EMPTY_LOG, LogFiles, LogOffset
from storages.persistent.log.records import EncodedRecord, Record, encode_if_small
from storages.persistent.replay.recovery import recover
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import OFFSETS

STEPS_SUFFIX, ERRORS_SUFFIX = "steps", "errors"
ERRORS_OF_STEPS = "errors of steps"
LOG_FILE_BYTES = 64 << 20
"""A file that is longer is not continued."""
_LARGEST_COMMIT_BYTES = 64 << 20
"""Of steps that are larger, fewer are committed at a time."""


@dataclass(frozen=True)
class Commit:
    """A snapshot of a storage that is to be written.

    Small records are encoded when the snapshot is taken, so that the thread that writes them holds up that of the
    storage for as little time as possible.
    """

    manifest: RingManifest
    steps: Record | EncodedRecord
    needed: int
    """The oldest step that it needs."""
    pinned: list[list[int]]
    new_file: bool
    """Whether it begins a file."""
    errors: Record | EncodedRecord | None
    all_errors: bool
    """Whether they are those of all live transitions, and begin a file."""


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
        self._owner, self._durable = owner, durable
        self._lock = _claimed(self.directory, owner, durable)
        self._steps = CommitLog(self.directory, STEPS_SUFFIX, durable)
        self._errors = LogFiles(self.directory, ERRORS_SUFFIX, durable, rows=ERRORS_OF_STEPS)
        try:
            self._manifest = RingManifest.read(self.directory)
            if self._manifest is not None:
                with name_damage(self.directory / RingManifest.name):
                    self._manifest.prepare(ring, self.directory, self._steps.files.nbytes)
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
        self.cut_bytes = 0
        """Bytes of a torn commit that recovery dropped."""
        self.due = 0
        """Before which step to call :meth:`commit_soon`."""
        self._next_commit = 0
        """Before which step a commit is to be made."""
        self.written = 0
        """The number after the newest step that is on disk."""
        self._errors_end = EMPTY_LOG
        """End of the errors of the commit that was recovered."""
        self._all_errors_bytes = 0

    # Back into memory

    def recover(self, ring: Ring) -> dict[str, Any] | None:
        """Recover the ring, and drop a torn commit; return the state beside the ring.

        Raises:
            DamageError: something is not what was written; the text names file and steps.
        """
        state = self._recover(ring, None)
        try:
            self.cut_bytes = self._cut()
        except OSError as error:
            raise PersistenceError(f"{self._owner}: {self.directory} cannot be written: {error}") from error
        return state

    def refuse_unless_there(self, position: Position) -> None:
        """Raise what :meth:`roll_back` would raise before it changes anything."""
        self._refuse_unless_held()
        self._settle()
        if position["commit"]:
            self._commit_at(position)
            for _ in self._errors.read():
                # Damage is found before anything is changed.
                pass

    def roll_back(self, ring: Ring, position: Position, at_once: bool = False) -> dict[str, Any] | None:
        """Restore a commit; later ones are dropped, on disk ``at_once`` or before the next commit.

        Raises:
            PersistenceError: the directory does not have it; nothing was dropped.
            DamageError: something is not what was written; the text names file and steps.
            OSError: not everything could be dropped ``at_once``.
        """
        self.refuse_unless_there(position)
        try:
            remove_note(self.directory, self._durable)
        except OSError as error:
            raise PersistenceError(f"{self._owner}: {self.directory} cannot be written: {error}") from error
        ring.reset()
        if not position["commit"]:
            ring.steps = ring.first = 0
        state = self._recover(ring, position["commit"])
        try:
            self._cut()
        except OSError:
            # It is tried again, and said, before anything else is written.
            self._failed = True
            if at_once:
                raise
        return state

    def _recover(self, ring: Ring, until: int | None) -> dict[str, Any] | None:
        state, end = None, EMPTY_LOG
        steps = CommitLog(self.directory, STEPS_SUFFIX, self._durable)
        try:
            with name_damage(self.directory):
                if ring.layout:
                    state, end = recover(ring, steps, self._errors, until)
                if until is None:
                    refuse_missing(self.directory, steps)
            self._steps.files.close()
        except DamageError as damage:
            raise DamageError(
                f"{self._owner}: {damage}. storages.persistent.repair({str(self.directory)!r}) drops what is damaged "
                f"and keeps the rest"
            ) from None
        except OSError as error:
            raise PersistenceError(f"{self._owner}: {self.directory} cannot be read: {error}") from error
        self._steps, self._errors_end = steps, end
        self._failed, self._errors_on_their_way = False, True
        self.written = ring.steps
        self.due = self._next_commit = 0
        self._is_cut = False
        return state

    def _cut(self) -> int:
        """Drop what is newer than the present commit; return how many bytes that was."""
        dropped = self._steps.cut() + self._errors.cut(self._errors_end)
        self._is_cut = True
        return dropped

    # What is committed

    @property
    def position(self) -> Position:
        """The last commit, once it is on disk."""
        self._wait()
        return self._steps.position.copy()

    def commit_soon(self, ring: Ring, state: Callable[[], dict[str, Any]], priorities: Priorities | None) -> None:
        """Wait for the commit that is being written and, if it is time, begin the next one.

        Raises:
            PersistenceError: that one, or this one, could not be written.
        """
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
        commit = self._snapshot(ring, state(), priorities, self._steps.pinned, everything=False)
        # The more steps in a commit, the less each costs; the fewer, the longer the disk may take until it is waited
        # for, which is when as many are not there as may be missing.
        largest = _LARGEST_COMMIT_BYTES // max(1, ring.bytes_of_a_step)
        steps = max(1, min(most * 2 // 3, largest))
        # Before the thread begins: where it fails at once, it says that the next commit is due now.
        self._next_commit = ring.steps + steps
        self.due = min(self._next_commit, commit.steps.first + most)
        if self._failed or ring.steps >= latest or self._is_quick(commit):
            self._write(commit)
            self.due = self._next_commit
        else:
            self._writing = self._executor.submit(self._write, commit)

    def flush(
        self,
        ring: Ring,
        state: dict[str, Any],
        priorities: Priorities | None,
        pin: int = 0,
        new_file: bool = False,
    ) -> None:
        """Commit everything, and wait until it is on disk.

        Args:
            ring: the storage's.
            state: of the storage, beside the ring.
            priorities: the storage's, if it has any.
            pin: 0, or how many commits that checkpoints refer to stay usable, from now on this one among them.
            new_file: write all that is needed into a new file, so that older files are dropped unless checkpoints
                refer to them.

        Raises:
            PersistenceError: it could not be written.
        """
        self._refuse_unless_held()
        self._settle()
        if not ring.layout:
            return
        pinned = self._steps.with_pin(ring.needed, pin) if pin else self._steps.pinned
        self._write(self._snapshot(ring, state, priorities, pinned, everything=new_file))

    def pin(self, position: Position) -> None:
        """Keep what a commit needs, and no longer what those pinned before need; written with the next commit.

        Raises:
            PersistenceError: the directory does not have it.
        """
        self._settle()
        commit = position["commit"]
        self._steps.pinned = [[commit, self._commit_at(position).facts["needed"]]] if commit else []

    def changed(self) -> None:
        """Invalidate the log: the next commit is a full snapshot."""
        self.written = self.due = self._next_commit = 0

    def wait(self) -> None:
        """Wait for the commit that is being written; if it fails, the next commit tries it again."""
        self._settle()

    def close(self) -> None:
        """Release the directory, without a commit.

        Raises:
            PersistenceError: a file could not be closed; the directory is released all the same.
        """
        try:
            self._executor.shutdown()
            self._steps.files.close()
            self._errors.close()
            if self._lock.held and self._is_cut and not self._failed:
                write_note(self.directory, self._steps, [self._errors], self._durable)
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
        self,
        ring: Ring,
        state: dict[str, Any],
        priorities: Priorities | None,
        pinned: list[list[int]],
        everything: bool,
    ) -> Commit:
        """Snapshot what is not on disk, or all that is needed; no commit may be being written."""
        number, needed, manifest = self._steps.position["commit"] + 1, ring.needed, RingManifest.of(ring)
        part = ring.snapshot(needed if everything else max(self.written, needed))
        # A file says of which size the ring is whose steps it holds.
        has_changed = manifest != self._manifest
        new_file = everything or has_changed or self._steps.is_full(self._log_file_bytes or LOG_FILE_BYTES)
        facts = self._steps.next_facts(needed, pinned, part.begins)
        facts |= {"state": state, "since": part.since, "errors": None}
        if new_file:
            facts["manifest"] = manifest.facts()
        arrays, errors, all_errors = part.arrays, None, False
        if priorities is not None:
            arrays = arrays | {ArrayKey(ERRORS): (priorities.errors(part.first),)}
            many = self._errors.end.offset > max(LOG_FILE_BYTES, 4 * self._all_errors_bytes)
            offsets, changed = priorities.changes(everything=many or self._errors_on_their_way)
            self._errors_on_their_way, all_errors = True, offsets is None
            named = {} if offsets is None else {ArrayKey(OFFSETS): (offsets,)}
            errors = encode_if_small(
                Record(number, part.first, part.steps, {"start": ring.start}, named | {ArrayKey(ERRORS): (changed,)})
            )
            if isinstance(errors, EncodedRecord):
                facts["errors"] = errors.checksum
        record = Record(number, part.first, part.steps, facts, arrays)
        # The checksum of many errors is known only when they are written.
        steps = record if isinstance(errors, Record) else encode_if_small(record)
        return Commit(manifest, steps, needed, pinned, new_file, errors, all_errors)

    def _is_quick(self, commit: Commit) -> bool:
        """Whether a commit is copied to the system's cache in less time than it takes to hand it to a thread."""
        if (
            self._durable
            or not self._is_cut
            or commit.new_file
            or commit.all_errors
            or commit.manifest != self._manifest
        ):
            return False
        return isinstance(commit.steps, EncodedRecord) and (
            commit.errors is None or isinstance(commit.errors, EncodedRecord)
        )

    def _be_due(self) -> None:
        """Let the next insertion raise the error; called by any thread."""
        self.due = self._next_commit = 0

    def _write(self, commit: Commit) -> None:
        """Called by one thread at a time."""
        ends: list[tuple[LogFiles, LogOffset]] = []
        try:
            if not self._is_cut:
                self._cut()
            ends = [(log, log.end) for log in (self._errors, self._steps.files)]
            if commit.manifest != self._manifest:
                commit.manifest.write(self.directory, self._durable)
                self._manifest = commit.manifest
            steps = commit.steps
            if commit.errors is not None:
                checksum = self._errors.append(commit.errors, new_file=commit.all_errors)
                if isinstance(steps, Record):
                    steps = replace(steps, facts=steps.facts | {"errors": checksum})
                if commit.all_errors:
                    self._all_errors_bytes = self._errors.end.offset
            self._steps.append(steps, commit.pinned, commit.new_file)
            self._note_written(commit)
        except BaseException as error:
            self._failed = True
            self._be_due()
            if self._steps.position["commit"] != commit.steps.commit:
                # The next commit has the same number.
                for log, end in ends:
                    if log.end != end:
                        log.take_back(end)
            else:
                self.written = commit.steps.steps
            if not isinstance(error, OSError):
                raise
            safe = (
                "What was committed there is gone, but in memory still"
                if isinstance(error, FileNotFoundError)
                else f"Steps before {self.written} are safe there, those from {self.written} to {commit.steps.steps} "
                f"are in memory alone; make room, or give permission, and insert or flush() again"
            )
            raise PersistenceError(
                f"{self._owner}: {self.directory} cannot be written: {error}. {safe}. insert_data_slice("
                f"get_all_buffer_data()) takes it to a storage with another directory"
            ) from error

    def _note_written(self, commit: Commit) -> None:
        self._failed = self._errors_on_their_way = False
        self.written = commit.steps.steps
        if commit.new_file or commit.all_errors:
            # What is too much goes the next time where it cannot now.
            with suppress(OSError):
                self._steps.drop_unneeded(commit.needed)
                numbers = [self._steps.position["commit"], *(number for number, _ in commit.pinned)]
                self._errors.drop_before(min(map(self._errors_file_of, numbers)))

    def _errors_file_of(self, commit: int) -> int:
        """Return the number of the file that has the errors of a commit; 0 if it is gone."""
        return max((number for number in self._errors.numbers() if number <= commit), default=0)

    def _commit_at(self, position: Position) -> Record:
        def is_complete(record: Record) -> bool:
            has_errors = ArrayKey(ERRORS) not in record.arrays or self._errors_file_of(record.commit) > 0
            return has_errors and self._steps.file_of(record.commit, record.facts["needed"]) > 0

        try:
            return self._steps.commit_at(position, is_complete)
        except DamageError:
            raise
        except PersistenceError as error:
            raise PersistenceError(f"{self._owner}: {error}") from None

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

    def _settle(self) -> None:
        try:
            self._wait()
        except PersistenceError:
            # It will be tried again, and said again.
            assert self._failed


def _claimed(directory: Path, owner: str, durable: bool) -> Lock:
    """The lock of a directory that holds a storage, or nothing yet; any other is left as it is."""
    try:
        return RingManifest.claim(directory, durable)
    except PersistenceError as error:
        raise type(error)(f"{owner}: {error}") from None
    except OSError as error:
        raise PersistenceError(f"{owner}: {directory} cannot be written: {error}; name another one") from error
