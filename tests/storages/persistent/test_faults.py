"""Faults of the disk: errors name the place, the safe steps and a remedy, and the data in memory stays usable."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import ReplayBuffer
from storages.persistent import PersistenceError
from storages.persistent.log import records as blocks
from storages.persistent.replay import write_ahead_log
from tests.support.directories import SIZE, Pair, files_no_longer_than, longest_file_bytes, made, small_segments
from tests.support.model import Stream, contents, environments


def insert_until_refused(storage: Any, stream: Stream) -> list[Any]:
    """Insert until an error is raised; return the samples that were stored."""
    taken = []
    with pytest.raises(PersistenceError) as refused:  # noqa: PT012
        for _ in range(1000):
            sample = stream.step()
            storage.insert_transition(sample)
            taken.append(sample)
    assert str(storage.directory) in str(refused.value)
    return taken


# The disk


@pytest.mark.parametrize("commit_every", [1, 8])
@pytest.mark.parametrize("way", ["plain", "recency"])
def test_a_full_disk_is_reported_and_all_steps_are_written_once_there_is_space(
    way: str, commit_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No other file is begun.
    monkeypatch.setattr(write_ahead_log, "_SMALLEST_LOG_FILE_BYTES", 1 << 20)
    directory = tmp_path / "kept"
    pair = Pair(way, directory, commit_every=commit_every)
    pair.insert(20)
    pair.update()
    pair.kept.flush()
    safe = pair.kept.ring.steps
    with files_no_longer_than(longest_file_bytes(directory) + 100):
        for sample in insert_until_refused(pair.kept, pair._stream):
            pair.twin.insert_transition(sample)
        with pytest.raises(PersistenceError, match=f"Steps before {safe} are safe there, .*free disk space") as refused:
            pair.kept.flush()
        assert isinstance(refused.value.__cause__, OSError)
        pair.assert_same()
        shutil.copytree(directory, tmp_path / "copy")
        assert pair.kept.ring.steps - safe <= commit_every
    there = pair.open(tmp_path / "copy")
    assert there.ring.steps == safe
    there.close()
    pair.insert(5)
    pair.reopen()
    pair.assert_same()
    pair.kept.close()


def test_insertions_are_refused_if_too_many_steps_are_uncommitted(tmp_path: Path) -> None:
    storage, stream = made("plain", tmp_path, commit_every=6), Stream(1, "vector", False, np.random.default_rng(0))
    for _ in range(10):
        storage.insert_transition(stream.step())
    storage.flush()
    with files_no_longer_than(100):
        for _ in range(5):
            insert_until_refused(storage, stream)
        assert storage.ring.steps - 10 <= 6
    storage.close()


def test_a_deleted_directory_is_reported_at_the_next_commit(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path / "there", commit_every=2)
    pair.insert(4)
    pair.kept.flush()
    shutil.rmtree(tmp_path / "there")
    for sample in insert_until_refused(pair.kept, pair._stream):
        pair.twin.insert_transition(sample)
    pair.assert_same()
    with pytest.raises(PersistenceError, match="What was committed there is lost, but still in memory"):
        pair.kept.flush()
    with pytest.raises(PersistenceError):
        pair.kept.close()
    elsewhere = made("plain", tmp_path / "elsewhere")
    elsewhere.insert_data_slice(pair.kept.get_all_buffer_data())
    assert contents(elsewhere) == contents(pair.twin)
    elsewhere.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user and change it back")
def test_a_lost_write_permission_is_reported_and_writing_continues_once_granted(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path / "kept", commit_every=2)
    (tmp_path / "kept").chmod(0o555)
    with small_segments(500):
        pair.insert(4)
        pair.kept.flush()
        os.seteuid(65534)
        try:
            taken = insert_until_refused(pair.kept, pair._stream)
        finally:
            os.seteuid(0)
        for sample in taken:
            pair.twin.insert_transition(sample)
        pair.insert(2)
    pair.reopen()
    pair.assert_same()
    pair.kept.close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PersistenceError, match=r"ReplayBuffer: .*file/below cannot be written.*name another one"):
        made("plain", tmp_path / "file" / "below")


# Files changed by another program


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


# Concurrent writers


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_neither_writes_nor_holds_the_lock(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(3)
    reporting, waiting = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pair.kept.close()
            pair.kept.flush()
            os.write(reporting[1], b"nothing was refused")
        except BaseException as error:  # The child must not return into pytest.
            os.write(reporting[1], repr(error).encode())
        finally:
            os.read(waiting[0], 1)
            os._exit(0)
    try:
        refused = os.read(reporting[0], 10_000)
        assert refused.startswith(b"PersistenceError")
        assert b"this process was forked from the one that holds it" in refused
        pair.reopen()
        pair.insert(3)
        pair.assert_same()
    finally:
        os.write(waiting[1], b"!")
        os.waitpid(child, 0)
        for end in (*reporting, *waiting):
            os.close(end)
    pair.close()


def test_a_closed_storage_refuses_insertions_and_keeps_its_content(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(3)
    pair.kept.close()
    with pytest.raises(PersistenceError, match=r"it was closed, or this process was\s+forked"):
        pair.kept.insert_transition(pair._stream.step())
    assert contents(pair.kept) == contents(pair.twin)


# Unexpected content of a directory


def test_a_directory_with_other_files_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(PersistenceError, match=r"holds something else \(thesis.tex\)"):
        made("plain", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_of_a_newer_format_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(3)
    pair.kept.close()
    manifest = tmp_path / "storage.json"
    facts = json.loads(manifest.read_text()) | {"format": 7}
    manifest.write_text(json.dumps(facts))
    before = _files(tmp_path)
    with pytest.raises(PersistenceError, match=r"storage.json has format 7, and this version of pytorchrl reads 5"):
        made("plain", tmp_path)
    assert _files(tmp_path) == before


@pytest.mark.parametrize(
    ("given", "envs", "message"),
    [
        ({"size": 13}, 2, "holds a storage with size 12, this one has 13; make it with 12"),
        ({}, 3, "holds a storage with num_envs 2, this one has 3"),
    ],
)
def test_a_directory_of_another_storage_is_refused_and_left_unchanged(
    given: Any, envs: int, message: str, tmp_path: Path
) -> None:
    pair = Pair("plain", tmp_path, "frames")
    pair.insert(3)
    pair.kept.close()
    before = _files(tmp_path)
    with pytest.raises(PersistenceError, match=message):
        made("plain", tmp_path, environments("frames", envs), **({"size": SIZE} | given))
    assert _files(tmp_path) == before


def test_single_frames_are_refused_in_a_directory_of_stacked_frames(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, "frames")
    pair.insert(3)
    pair.kept.close()
    with pytest.raises(PersistenceError, match=r"holds stacked frames {'Observation': 3}, this storage has {}"):
        made("plain", tmp_path)


# Damage


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A directory of several files, and its content after each step."""
    directory = tmp_path_factory.mktemp("whole") / "kept"
    with small_segments(1500):
        pair = Pair("priority", directory, "dict", num_envs=1, commit_every=4)
        held = {}
        for _ in range(14):
            pair.insert()
            pair.update()
            pair.kept.flush()
            held[pair.twin.ring.steps] = contents(pair.twin)
        pair.kept.close()
    return directory, held


def test_a_change_of_any_byte_of_a_record_is_detected(whole: Any, tmp_path: Path) -> None:
    path = min(whole[0].glob("*.steps"), key=lambda path: path.stat().st_size)
    original, random = path.read_bytes(), np.random.default_rng(0)
    intact = [found for found in blocks.read(path) if isinstance(found, blocks.StoredRecord)]
    for place in range(len(original)):
        (tmp_path / "damaged").write_bytes(_flipped(original, place, random))
        found = list(blocks.read(tmp_path / "damaged"))
        flaws = [one for one in found if isinstance(one, blocks.CorruptRange)]
        assert any(flaw.begin <= place < flaw.end for flaw in flaws)
        assert len(found) - len(flaws) == len(intact) - 1, "the other blocks are still found"


def _flipped(data: bytes, place: int, random: np.random.Generator) -> bytes:
    damaged = bytearray(data)
    damaged[place] ^= 1 << int(random.integers(8))
    return bytes(damaged)


def test_after_a_kill_a_truncated_last_file_keeps_its_complete_commits(whole: Any, tmp_path: Path) -> None:
    directory, held = whole
    path = sorted(directory.glob("*.steps"))[-1]
    ends = [found.end for found in blocks.read(path)]
    for length in {*range(0, ends[-1], 37), *ends, *(end - 1 for end in ends)}:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(directory, tmp_path / "copy")
        os.truncate(tmp_path / "copy" / path.name, length)
        (tmp_path / "copy" / "closed.json").unlink()
        storage = made("priority", tmp_path / "copy")
        assert contents(storage) == held[storage.ring.steps]
        left = tmp_path / "copy" / path.name
        assert (left.stat().st_size if left.exists() else 0) == max([0, *(end for end in ends if end <= length)])
        storage.close()


def test_no_file_on_disk_is_a_pickle(whole: Any) -> None:
    for name, data in _files(whole[0]).items():
        assert b"\x80\x04" not in data[:2], name
        assert b"numpy" not in data
    assert ReplayBuffer.__name__.encode() not in (whole[0] / "storage.json").read_bytes()
