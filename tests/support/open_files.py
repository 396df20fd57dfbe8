"""Limits of the number of files that the process may open."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def files_left(number: int) -> Iterator[None]:
    """A context in which the process may open a number of files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Files are numbered by the lowest free numbers, and the limit is one of numbers.
    opened = {int(file.name) for file in Path("/proc/self/fd").iterdir()}
    free = [file for file in range(soft) if file not in opened]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[number], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
