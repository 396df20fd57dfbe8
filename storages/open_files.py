"""The error of a process that may open no more files, with the setting that bounds them, and files kept for it."""

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]


@contextmanager
def open_files_named(what: str, way_out: str) -> Iterator[None]:
    """Return a context in which the error of too many open files names what takes them, their limit and ways out.

    Args:
        what: takes the files, such as "VecEnv: num_envs=8 with mode='async'".
        way_out: other than a higher limit, such as "take fewer environments".

    Raises:
        OSError: there are too many open files, with the same ``errno``.
    """
    try:
        yield
    except OSError as error:
        if not is_of_open_files(error):
            raise
        raise OSError(
            error.errno, f"{what}: too many open files, {limit_of_open_files(error)}, or {way_out}"
        ) from error


def is_of_open_files(error: BaseException) -> bool:
    """Return whether an exception says that there are too many open files."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def limit_of_open_files(error: OSError) -> str:
    """Return the limit that an error is due to, and how to raise it, as a part of a sentence."""
    if resource is None or error.errno == errno.ENFILE:
        return "of all processes of this machine; close some"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    higher = max(4096, 4 * soft)
    if soft < hard != resource.RLIM_INFINITY:
        # More would take the rights of the system's administrator.
        higher = min(hard, higher)
    return f"of which this process may have {soft:,}; raise that by `ulimit -n {higher}`"


def remedy_of(error: OSError) -> str:
    """Return what to do, as a part of a sentence, where a file cannot be written."""
    if is_of_open_files(error):
        return f"close files, {limit_of_open_files(error)}"
    return "free disk space or grant write permission"


class SpareFiles:
    """Open files that are closed where a process can open no others, and has to write once more.

    Args:
        number: how many.

    Raises:
        OSError: too many files are open.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._files: list[int] = []
        weakref.finalize(self, _close, self._files)
        self._open()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Return a context in which as many other files can be opened."""
        self.close()
        try:
            yield
        finally:
            try:
                self._open()
            except OSError as error:
                if not is_of_open_files(error):
                    raise

    def close(self) -> None:
        """Close the files."""
        _close(self._files)

    def _open(self) -> None:
        while len(self._files) < self._number:
            self._files.append(os.open(os.devnull, os.O_RDONLY))


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())
