"""Which process trains a trial, where several processes share the folder of a search."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storages.persistent.log.lock import InUseError, Lock
from storages.persistent.log.system_calls import NoLocksError

_LONGEST_WAIT_SECONDS = 60.0
_SECONDS_BETWEEN_TRIES = 0.05


class Claims:
    """Locks of the folders of trials that this process trains; the operating system ends those of a killed process.

    On file systems without locks, every trial is free.
    """

    def __init__(self) -> None:
        self._locks: dict[Path, Lock] = {}
        self._made: set[Path] = set()

    def made_before(self, folder: Path) -> bool:
        """Return whether this process has had the trial, or has it now."""
        return folder in self._made

    def make(self, folder: Path) -> bool:
        """Claim a trial until :meth:`release`; return False where another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with suppress(NoLocksError):
                self._locks[folder] = Lock(folder)
        except InUseError:
            return False
        self._made.add(folder)
        return True

    def release(self, folder: Path) -> None:
        """Let other processes have the trial."""
        if (lock := self._locks.pop(folder, None)) is not None:
            lock.release()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a context with the folder.

    Raises:
        InUseError: another process stayed in it for a minute.
    """
    until, lock = time.monotonic() + _LONGEST_WAIT_SECONDS, None
    with suppress(NoLocksError):
        while lock is None:
            try:
                lock = Lock(folder)
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
