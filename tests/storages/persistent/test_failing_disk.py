"""A disk that fails for a moment: what was committed stays, the rest is tried again, and nothing wrong is left."""

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
from tests.support.directories import Pair, small_segments
from tests.support.model import contents


@contextmanager
def failing(owner: Any, name: str, which: Any = lambda *_: True) -> Iterator[None]:
    """Have a call of the operating system fail where ``which`` says so of its arguments."""
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
    """Half of what is written to a file of steps gets there; then the disk fails."""
    write = os.write

    def half(file: int, data: Any) -> int:
        if not is_of_steps(file):
            return write(file, data)
        write(file, data[: len(data) // 2])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blocks.os, "write", half)
        yield


@pytest.mark.parametrize("takes_back", [True, False])
def test_errors_of_a_commit_whose_steps_could_not_be_written_are_not_taken_for_those_of_the_next(
    takes_back: bool, tmp_path: Path
) -> None:
    pair = Pair("priority", tmp_path, size=60, commit_every=20)
    pair.insert(40)
    pair.update()
    # A checkpoint, so that the file of errors stays.
    pair.kept.state_dict()
    pair.update()
    with half_written_steps(), failing(segments.os, "ftruncate", lambda *_: not takes_back):  # noqa: SIM117
        with pytest.raises(PersistenceError, match="cannot be written"):
            pair.kept.flush()
    pair.update()
    pair.insert(5)
    pair.kept.flush()
    pair.update()
    pair.reopen()
    pair.assert_same()
    pair.close()


@pytest.mark.parametrize("way", ["plain", "priority"])
@pytest.mark.parametrize("new_file", [False, True])
def test_a_block_that_was_half_written_and_could_not_be_taken_back_leaves_no_hole(
    new_file: bool, way: str, tmp_path: Path
) -> None:
    with small_segments(0 if new_file else 1_000_000):
        pair = Pair(way, tmp_path, commit_every=4)
        pair.insert(10)
        pair.kept.flush()
        for _ in range(2):
            pair.insert(2)
            with half_written_steps(), failing(segments.os, "ftruncate"), failing(Path, "unlink"):
                for _ in range(2):
                    with pytest.raises(PersistenceError, match="cannot be written"):
                        pair.kept.flush()
            left = pair.kept.ring.steps
            pair.insert(3)
            pair.kept.flush()
            assert pair.kept.ring.steps == left + 3
        pair.reopen()
        pair.assert_same()
        pair.close()


def test_what_cannot_be_taken_back_is_said_by_close(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["unlink", "ftruncate"])
def test_a_state_that_was_loaded_where_files_cannot_be_cut_is_what_is_there_once_they_can(
    name: str, tmp_path: Path
) -> None:
    # A file is deleted, or one is shortened.
    with small_segments(1_500 if name == "unlink" else 9_000):
        pair = Pair("priority", tmp_path, commit_every=3)
        pair.insert(10)
        pair.update()
        kept, twin = pair.kept.state_dict(), pair.twin.state_dict()
        pair.insert(12)
        pair.update()
        pair.kept.flush()
        with failing(*((segments.os, name) if name == "ftruncate" else (Path, name))):
            pair.kept.load_state_dict(kept)
            pair.twin.load_state_dict(twin)
            pair.assert_same()
            with pytest.raises(PersistenceError, match="cannot be written"):
                pair.kept.flush()
        pair.insert(4)
        pair.reopen()
        pair.assert_same()
        pair.close()


def test_nothing_is_written_behind_what_something_else_wrote_to_a_file(tmp_path: Path) -> None:
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


def test_a_file_that_was_made_shorter_beside_the_storage_is_missed(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, commit_every=4)
    pair.insert(9)
    pair.kept.flush()
    path = max(tmp_path.glob("*.steps"))
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(PersistenceError, match="it was truncated"):
        pair.insert(1)
    with pytest.raises(PersistenceError):
        pair.kept.close()


@pytest.mark.parametrize("name", ["close", "fsync", "fdatasync", "fstat", "open", "write", "listdir"])
@pytest.mark.parametrize("durable", [False, True])
def test_each_call_may_fail_once_and_is_tried_again(name: str, durable: bool, tmp_path: Path) -> None:
    call = getattr(os, name)
    with small_segments(2_000):
        pair = Pair("priority", tmp_path, commit_every=3, durable=durable)
        pair.insert(6)
        for place in range(12):
            left = [place]

            def fails_once(*given: Any, left: list[int] = left, **named: Any) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(*given, **named)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(segments.os, name, fails_once)
                for _ in range(4):
                    sample = pair._stream.step()
                    try:
                        pair.kept.insert_transition(sample)
                    except PersistenceError:
                        pair.kept.insert_transition(sample)
                    pair.twin.insert_transition(sample)
                try:
                    pair.kept.flush()
                except PersistenceError:
                    pair.kept.flush()
            there = pair.open(copied(tmp_path, tmp_path.parent / f"{tmp_path.name} {place}"))
            assert contents(there) == contents(pair.twin)
            there.close()
            pair.update()
        pair.reopen()
        pair.assert_same()
        pair.close()


def copied(directory: Path, to: Path) -> Path:
    to.mkdir()
    for path in directory.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to
