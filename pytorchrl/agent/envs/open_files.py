"""The error of a process that may open no more files, with the setting that bounds them."""

import errno
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
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise OSError(error.errno, f"{what}: too many open files, {_limit(error)}, or {way_out}") from error


def _limit(error: OSError) -> str:
    if resource is None or error.errno == errno.ENFILE:
        return "of all processes of this machine; close some"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"of which this process may have {soft}; raise that by `ulimit -n {min(hard, max(4096, 4 * soft))}`"
