"""A disk that fails temporarily: commits remain, other steps are written again, and no wrong data is left."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import PersistenceError
from storages.persistent.log import log_files as segments
from storages.persistent.log import records as blocks
from tests.support.directories import Pair
from tests.support.model import contents


@contextmanager
def failing(owner: Any, name: str, which: Any = lambda *_: True) -> Iterator[None]:
    """Make a call of the operating system fail if ``which`` is true for its arguments."""
    call = getattr(owner, name)

    def fails(*given: Any, **named: Any) -> Any:
        if which(*given):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(*given, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, fails)
        yield


def is_of_steps(file: Any, *_: Any) -> bool:
    return Path(f"/proc/self/fd/{file}").readlink().suffix == ".steps"


@contextmanager
def half_written_steps() -> Iterator[None]:
    """Each write to a file of steps writes half of its data and fails."""
    write = os.write

    def half(file: int, data: Any) -> int:
        if not is_of_steps(file):
            return write(file, data)
        write(file, data[: len(data) // 2])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocks.os, "write", half)
        yield


def test_close_reports_steps_that_could_not_be_written(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, commit_every=4)
    pair.insert(3)
    pair.kept.flush()
    safe = contents(pair.twin)
    pair.insert(1)
    with half_written_steps():
        with failing(segments.os, "ftruncate"), pytest.raises(PersistenceError):
            pair.kept.flush()
        with pytest.raises(PersistenceError, match="Steps before 3 are safe there, those from 3 to 4 are in memory"):
            pair.kept.close()
    there = pair.open()
    assert contents(there) == safe
    there.close()


def test_foreign_bytes_at_the_end_of_a_file_do_not_damage_later_commits(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, commit_every=4)
    pair.insert(9)
    pair.kept.flush()
    with max(tmp_path.glob("*.steps")).open("ab") as file:
        file.write(b"something else")
    pair.insert(1)
    pair.kept.flush()
    pair.insert(9)
    pair.reopen()
    pair.assert_same()
    pair.close()


def test_a_file_truncated_by_another_program_is_reported(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, commit_every=4)
    pair.insert(9)
    pair.kept.flush()
    path = max(tmp_path.glob("*.steps"))
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(PersistenceError, match="it was truncated"):
        pair.insert(1)
    with pytest.raises(PersistenceError):
        pair.kept.close()
