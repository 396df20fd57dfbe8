"""Exclusive lock of a directory, released by the operating system when its process ends."""

import json
import os
import socket
import weakref
from contextlib import suppress
from pathlib import Path

from storages.errors import PersistenceError
from storages.system_calls import (
    NoLocksError,
    after_fork_in_child,
    lock_exclusively,
    open_directory,
    open_plain_file,
)

NAME = "lock"
_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class InUseError(PersistenceError):
    """Raised where a directory is locked already.

    Args:
        message: the text of the error.
        holder: description of the process that holds the lock.
    """

    def __init__(self, message: str, holder: str = "another process") -> None:
        super().__init__(message)
        self.holder = holder


class Lock:
    """Exclusive lock of a directory, held until it is released or its process ends.

    Both the directory and the lock file, which names the holder, are locked (``flock``), so that deleting the lock file
    does not unlock the directory. Network file systems can lock files only: there, a storage whose lock file was
    deleted refuses its next commit.

    A forked process does not inherit the lock.

    Args:
        directory: the directory to lock.

    Raises:
        InUseError: it is locked already, in this process or another.
        NoLocksError: the system has no such locks.
        OSError: the directory cannot be opened, or the lock file cannot be created in it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._file: int | None = None
        folder = open_directory(directory)
        try:
            # First, so that no file is created in a directory that is in use.
            self._locks_folder = _locked(folder, self._path, of_folder=True)
            file = open_plain_file(self._path, os.O_CREAT)
            try:
                _locked(file, self._path, of_folder=False)
                _tell_holder(file)
            except BaseException:
                os.close(file)
                raise
        except BaseException:
            os.close(folder)
            raise
        self._folder, self._file = folder, file
        _held.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._file is not None

    @property
    def lost(self) -> bool:
        """Whether the lock file was deleted or replaced, on a file system where only files can be locked."""
        if self._locks_folder or self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file), self._path.stat(follow_symlinks=False))
        except OSError:
            return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            file, self._file = self._file, None
            _held.discard(self)
            os.close(file)
            os.close(self._folder)


def _locked(file: int, path: Path, *, of_folder: bool) -> bool:
    """Lock a file or a folder; return False for a folder if the file system can lock files only.

    Raises:
        InUseError: it is locked already.
        NoLocksError: the file system has no locks.
    """
    try:
        lock_exclusively(file)
    except BlockingIOError:
        holder = _holder(path)
        raise InUseError(
            f"{path.parent} is in use by {holder}; one storage writes at a time: close() that one, or name another "
            f"directory. The lock ends with its process, and not by deleting files",
            holder,
        ) from None
    except OSError as error:
        if of_folder:
            return False
        raise NoLocksError(
            f"{path.parent} is on a file system without locks ({error.strerror}), so that two storages might write "
            f"there at a time; name a directory on a local disk, or mount that one with locks (Lustre has the option "
            f"flock, NFS needs its lock service)"
        ) from error
    return True


def _tell_holder(file: int) -> None:
    # The name of the holder is for error messages only; the lock holds without it.
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def _holder(path: Path) -> str:
    try:
        file = open_plain_file(path, 0)
        try:
            who = json.loads(os.read(file, 1000))
        finally:
            os.close(file)
        return f"process {int(who['pid'])} on host {who['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _close_inherited() -> None:
    """Close the inherited lock files in a forked process: the lock is its parent's."""
    for lock in list(_held):
        lock.release()


after_fork_in_child(_close_inherited)
