"""One writer at a time: a lock that the operating system takes back from a process that dies."""

import json
import os
import socket
import weakref
from pathlib import Path

from storages.persistent.errors import PersistenceError

NAME = "lock"
_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """Held from the moment that it is made until it is released, or its process is gone.

    A process that is forked off does not hold it, nor does it keep others from it.

    Args:
        directory: what is locked.

    Raises:
        PersistenceError: another storage holds it, in this process or another, or the system has no such locks.
    """

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError:
            raise PersistenceError("storages are kept on disk on systems that have POSIX file locks alone") from None
        file = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 1000, 0).decode(errors="replace")
            os.close(file)
            raise PersistenceError(
                f"{directory} is in use by {_told(holder)}; one storage writes at a time: close() that one, or name "
                f"another directory"
            ) from None
        self._file: int | None = file
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        _held.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._file is not None

    def release(self) -> None:
        """Let others have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            _held.discard(self)


def _told(holder: str) -> str:
    try:
        who = json.loads(holder)
        return f"process {who['pid']} on host {who['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _let_go() -> None:
    """In a process that was forked off: the lock is its parent's."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
