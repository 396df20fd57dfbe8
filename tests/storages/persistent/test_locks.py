"""Only one storage writes to a directory at a time; the error for another one names the reason."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import PersistenceError, repair
from storages.persistent.log.lock import InUseError
from tests.support.directories import Pair, made

OPEN = """
import sys
from tests.support.directories import made
from storages.persistent import PersistenceError
try:
    made("plain", sys.argv[1]).close()
    print("opened")
except PersistenceError as error:
    print(error)
"""


def opened_by_another_process(directory: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", OPEN, directory]
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=True, timeout=120).stdout


def test_a_second_writer_is_refused_although_the_lock_file_was_deleted(tmp_path: Path) -> None:
    storage = made("plain", tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(PersistenceError, match="is in use by another process"):
        made("plain", tmp_path)
    assert not (tmp_path / "lock").exists(), "a file was created in a directory in use"
    storage.close()


def test_the_error_names_the_storage_class_and_the_process_that_holds_the_directory(tmp_path: Path) -> None:
    storage = made("plain", tmp_path)
    with pytest.raises(InUseError, match=r"^ReplayBuffer: .* is in use by process") as raised:
        made("plain", tmp_path)
    assert raised.value.holder.startswith(f"process {os.getpid()} on host")
    storage.close()


@pytest.mark.long
def test_a_second_process_is_refused_although_the_lock_file_was_deleted(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, commit_every=2)
    pair.insert(5)
    assert f"is in use by process {os.getpid()} on host" in opened_by_another_process(tmp_path)
    (tmp_path / "lock").unlink()
    assert "is in use by another process" in opened_by_another_process(tmp_path)
    assert not (tmp_path / "lock").exists(), "a file was created in a directory in use"
    with pytest.raises(PersistenceError, match="in use"):
        repair(tmp_path)
    pair.insert(5)
    pair.reopen()
    pair.assert_same()
    pair.close()
    assert opened_by_another_process(tmp_path) == "opened\n"


@pytest.fixture
def no_locks_of_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders cannot be locked, as on network file systems."""
    flock = fcntl.flock

    def locked(file: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file}"):  # noqa: PTH112
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", locked)


@pytest.mark.usefixtures("no_locks_of_folders")
@pytest.mark.parametrize("replaced", [False, True])
def test_without_folder_locks_a_deleted_lock_file_is_detected_before_the_next_commit(
    replaced: bool, tmp_path: Path
) -> None:
    pair = Pair("plain", tmp_path, commit_every=2)
    pair.insert(5)
    pair.kept.flush()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.steps")}
    (tmp_path / "lock").unlink()
    if replaced:
        (tmp_path / "lock").touch()
    with pytest.raises(PersistenceError, match=r"the file lock in .* was deleted or replaced"):
        pair.insert(5)
    with pytest.raises(PersistenceError, match=r"the file lock in .* was deleted or replaced"):
        pair.kept.close()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.steps")} == before


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_distinguished_from_a_directory_in_use(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", no_locks)
        with pytest.raises(PersistenceError, match=r"is on a file system without locks .*name a directory on a local"):
            made("plain", tmp_path)
    made("plain", tmp_path).close()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_lock_file_that_is_not_a_regular_file_is_refused_without_blocking(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "kept").mkdir()
    lock = tmp_path / "kept" / "lock"
    if kind == "link":
        lock.symlink_to(tmp_path / "mine")
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(PersistenceError, match="lock"):
        made("plain", tmp_path / "kept")
    assert (tmp_path / "mine").read_text() == "mine"
