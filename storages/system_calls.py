"""System calls that not all operating systems have, with a fallback where one is possible.

Storages in memory need none of them. A storage with a directory needs file locks, and is refused without them.
"""

import os
import stat
from collections.abc import Callable
from errno import EINVAL, EIO
from pathlib import Path

from storages.errors import PersistenceError

_DIRECTORY = getattr(os, "O_DIRECTORY", None)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NOT_INHERITED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)


class NoLocksError(PersistenceError):
    """Raised where the operating system or the file system has no file locks."""


def open_file(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file in binary mode, without following a symbolic link (O_NOFOLLOW, where the system has it).

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, flags | _NO_FOLLOW | _NOT_INHERITED | _BINARY, mode)


def open_plain_file(path: Path, flags: int) -> int:
    """Open a regular file for reading and writing, like :func:`open_file`; refuse pipes and devices.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    file = open_file(path, os.O_RDWR | _NON_BLOCKING | flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(EINVAL, "it is not a regular file", str(path))
    return file


def open_directory(directory: Path) -> int:
    """Open a directory, to lock or to sync it.

    Raises:
        NoLocksError: the operating system cannot open directories.
        OSError: it cannot be opened.
    """
    if _DIRECTORY is None:
        raise NoLocksError(_NO_LOCKS)
    return os.open(directory, os.O_RDONLY | _DIRECTORY | _NOT_INHERITED)


def write_all(file: int, data: "bytes | memoryview[int]") -> None:
    """Write all bytes of a buffer to an open file."""
    left = memoryview(data)
    while len(left):
        written = os.write(file, left)
        if not written:
            raise OSError(EIO, "nothing more is written")
        left = left[written:]


def sync_data(file: int) -> None:
    """Flush the content of an open file to disk (fdatasync).

    Raises:
        OSError: the content may not survive a power cut.
    """
    (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(file)


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory to disk (fsync); do nothing where the system cannot open directories.

    Raises:
        OSError: the entries may not survive a power cut.
    """
    if _DIRECTORY is None:
        return
    file = open_directory(directory)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def lock_exclusively(file: int) -> None:
    """Lock an open file or directory until it is closed or its process ends.

    Raises:
        NoLocksError: the operating system has no such locks.
        BlockingIOError: it is locked already.
        OSError: its file system has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        raise NoLocksError(_NO_LOCKS) from None
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Register a function that is called in every forked process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


_NO_LOCKS = "a storage with a directory needs POSIX file locks, which this system lacks; keep it in memory"
