"""Persistence of a storage: an observer of its ring that drives the write-ahead log."""

import atexit
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import Layout, text
from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.persistent.log.commit_log import Position
from storages.persistent.log.json_file import name_repair
from storages.persistent.replay.snapshot_records import flaw_of_state
from storages.persistent.replay.write_ahead_log import WriteAheadLog
from storages.protocols import Loggable, StorageLog
from storages.storage import Storage
from storages.transition import Sample


class Closable(Protocol):
    """A storage that has a directory open."""

    def close(self) -> None:
        """Release the directory."""


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()


class RingLog(StorageLog):
    """Commits a storage's rows to a directory, and restores them when the storage is made again.

    The guarantees are those of :mod:`storages.persistent`. Any storage can have one: call
    ``storage.observers.attach(RingLog(...))`` as the last statement of its ``__init__``.

    Args:
        storage: an empty storage with the same hyper-parameters as the one that wrote the directory.
        directory: directory of the log.
        commit_every: the most steps that are lost if the process is killed.
        durable: whether commits also survive a power cut.

    Raises:
        PersistenceError: the directory is in use, holds other files, or holds another storage.
        DamageError: the directory is damaged.
    """

    def __init__(self, storage: Storage, directory: str | Path, commit_every: int, durable: bool) -> None:
        # Weak, so that a storage is garbage-collected, and closed, with its last other reference.
        self._storage = weakref.ref(storage)
        self._ring, self._owner = storage.ring, type(storage).__name__
        self._state_as_made = storage.extra_state()
        self.wal = WriteAheadLog(Path(directory), self._owner, self._ring, commit_every, durable)
        state: dict[str, Any] | None = None
        try:
            state = self.wal.recover()
            if state is not None:
                storage.load_extra_state(state)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self.wal.close()
            damage = DamageError(
                f"{self.wal.directory} is damaged, or was not written by this package: its last commit holds no valid "
                f"state of a {self._owner}: {error!r}"
            )
            if state is None or flaw_of_state(state) is None:
                raise damage from error
            with name_repair(self.wal.directory, "begins counts and the random generator anew, and keeps the steps"):
                raise damage from error
        except BaseException:
            self.wal.close()
            raise
        close_at_exit(storage)

    # As an observer

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Begin the next commit if it is due."""
        if ring.steps >= self.wal.due:
            storage = self._storage()
            assert storage is not None
            self.wal.commit_soon(storage.extra_state, storage.priorities)

    def steps_at_once(self, ring: Ring) -> int:
        """Return the steps that may be inserted before the next commit."""
        return self.wal.due - ring.steps

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Wait until no commit in progress reads rows, if rows are about to change."""
        if rows:
            self.wal.wait()

    def after_change(self, ring: Ring) -> None:
        """Make the next commit a full snapshot."""
        self.wal.changed()

    def after_states(self, ring: Ring, transitions: NDArray[np.int64]) -> None:
        """Write the states with the next commit that is asked for."""
        self.wal.replaced.add(transitions)

    def after_resize(self, ring: Ring) -> None:
        """Move the notes of states that are not on disk."""
        self.wal.replaced.resized()

    # Called by the storage

    @property
    def position(self) -> Position:
        """Position of the last commit."""
        return self.wal.position

    def flush(self, storage: Loggable) -> None:
        """Commit everything, and wait until it is written."""
        self.wal.flush(storage.extra_state(), storage.priorities)

    def roll_back(self, position: Position) -> dict[str, Any]:
        """Restore the rows of a commit, drop later commits, and return the rest of the commit's state."""
        state = self.wal.roll_back(position)
        return self._state_as_made if state is None else state

    def pin(self, storage: Loggable, position: Position) -> None:
        """Pin a commit: keep the log files that a rollback to it needs."""
        self.wal.pin(position)
        self.flush(storage)

    def close(self, storage: Loggable) -> None:
        """Commit everything and release the directory."""
        if not self.wal.closed:
            try:
                self.flush(storage)
            finally:
                self.wal.close()

    def save(self, storage: Loggable) -> dict[str, Any]:
        """Commit everything, pin the commit, and return its position and the state besides the rows."""
        state = storage.extra_state()
        self.wal.flush(state, storage.priorities, pin=storage.states_kept)
        return {"position": dict(self.wal.position)} | state

    def refuse_other_fields(self, saved: Layout) -> None:
        """Raise a PersistenceError if the directory was made for other fields."""
        if self._ring.layout not in ({}, saved):
            here, there = (
                ", ".join(f"{text(path)} {leaf.dtype}{leaf.shape}" for path, leaf in layout.items())
                for layout in (self._ring.layout, saved)
            )
            raise PersistenceError(
                f"{self._owner}: {self.wal.directory} holds {here}; the state to be loaded has {there}. Make the "
                f"storage with another directory"
            )

    def __getstate__(self) -> dict[str, Any]:
        return self.wal.__getstate__()


def check_directory(owner: str, hyper_parameters: Mapping[str, Any]) -> None:
    """Refuse a ``directory`` that is a file, and ``durable=True`` without a directory.

    Raises:
        ValueError: one of these is the case.
    """
    directory = hyper_parameters["directory"]
    if directory is None and hyper_parameters["durable"]:
        raise ValueError(f"{owner}: durable=True needs a directory=, in which commits survive a power cut")
    if directory is not None and Path(directory).is_file():
        raise ValueError(f"{owner}: directory must be an existing or a new directory; {directory} is a file")


def close_at_exit(storage: Closable) -> None:
    """Close a storage when the process ends, if it still exists."""
    _open.add(storage)


@atexit.register
def _close_all() -> None:
    for storage in list(_open):
        storage.close()
