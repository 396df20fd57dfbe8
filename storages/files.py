"""File operations in an untrusted folder: no symbolic link in it is followed."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from storages.errors import DamageError, DroppedError, PersistenceError
from storages.system_calls import open_file, sync_directory, write_all

_LONGEST_TEXT_BYTES = 64 << 20
_TRIES = 100
"""Attempts to read a folder that another process changes meanwhile."""
_Content = TypeVar("_Content")


def unfinished(path: Path) -> Path:
    """Return the temporary path at which a file is written before it replaces ``path``."""
    return path.with_name(f"{path.name}.new")


def create(path: Path) -> BinaryIO:
    """Open a new file for writing, in place of an existing file or link."""
    path.unlink(missing_ok=True)
    # O_EXCL fails if a file or a link has appeared since.
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Write a file that replaces ``path`` atomically at the end; an exception leaves ``path`` unchanged.

    Args:
        path: the file; a link is replaced, not followed.
        durable: fsync, so that the new content survives a power cut.
    """
    new = unfinished(path)
    try:
        with create(new) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def read_text(path: Path) -> str:
    """Read a small text file.

    Raises:
        ValueError: the file is longer than 64 MiB, or is not UTF-8.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        # read() allocates the requested size first, so a crafted file must not choose it.
        content = file.read(min(os.fstat(file.fileno()).st_size, _LONGEST_TEXT_BYTES) + 1)
    if len(content) > _LONGEST_TEXT_BYTES:
        raise ValueError(f"it is longer than {_LONGEST_TEXT_BYTES >> 20} MiB")
    return content.decode()


def write_atomically(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace the content of a file atomically; see :func:`replacing`.

    Raises:
        OSError: the write failed; the file is unchanged.
    """
    with replacing(path, durable=durable) as file:
        write_all(file.fileno(), content)


def open_for_append(path: Path) -> BinaryIO:
    """Open a file for appending, and create it if it does not exist.

    Raises:
        PersistenceError: it is a symbolic link.
        OSError: it cannot be opened.
    """
    try:
        return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), "ab")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PersistenceError(_is_a_link(path)) from None
        raise


def refuse_link(path: Path) -> None:
    """Refuse a path that is a symbolic link.

    Raises:
        PersistenceError: it is one.
    """
    if path.is_symlink():
        raise PersistenceError(_is_a_link(path))


def refuse_links_in(folder: Path) -> None:
    """Refuse a folder that holds symbolic links, pipes or devices, at any depth.

    The path of the folder itself may contain links.

    Raises:
        PersistenceError: there is one; the text names the first.
        OSError: the folder cannot be listed.
    """
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise PersistenceError(_is_a_link(Path(entry.path)))
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                # Another process may have deleted it since.
                elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                    raise PersistenceError(f"{entry.path} is neither a file nor a folder; remove it")


def _is_a_link(path: Path) -> str:
    return f"{path} is a symbolic link, which is not followed; replace it by its target"


def read_beside_a_writer(folder: Path, read: Callable[[], _Content]) -> _Content:
    """Read a folder to which another process may be writing; retry while its files change.

    Raises:
        PersistenceError: the folder cannot be read, or something was deleted there during each attempt.
        DamageError: a file is damaged.
    """
    for tries_left in reversed(range(_TRIES)):
        before = _listed(folder)
        try:
            return read()
        except (DamageError, DroppedError, FileNotFoundError) as error:
            # What seems damaged or missing may have been deleted or written by the other process meanwhile.
            if tries_left and _listed(folder) != before:
                continue
            if isinstance(error, FileNotFoundError):
                raise PersistenceError(
                    f"{error.filename} was deleted while it was read, by a process that writes there; try again"
                ) from None
            raise
        except OSError as error:
            raise PersistenceError(f"{folder} cannot be read: {error}") from error
    raise AssertionError


def _listed(folder: Path) -> dict[str, tuple[int, int, int]]:
    listed = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            there = path.stat()
            listed[path.name] = there.st_ino, there.st_size, there.st_mtime_ns
    return listed


def make_directory(directory: Path, durable: bool) -> None:
    """Create a directory and its missing parents.

    Args:
        directory: may exist already.
        durable: fsync the directory entries that are created.

    Raises:
        OSError: a directory cannot be created; the parents that were created stay.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        if durable:
            try:
                sync_directory(path.parent)
            except OSError:
                # Otherwise the next call would find the directory, and take its entry for synced.
                path.rmdir()
                raise
