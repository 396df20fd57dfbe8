"""Episodes on disk: errors name faults, intact episodes stay usable, readers follow a writer; ancestors."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import ReplayBuffer
from storages.persistent import DamageError, PersistenceError, read_state, repair
from storages.persistent.log.notes import MARKER_NAME, write_marker
from tests.storages.persistent import killing_episodic
from tests.support.episodic import EpisodesModel, buffer, updated
from tests.support.model import Stream, contents
from tests.support.profiles import examples

KILLS = int(os.environ.get("STORAGE_KILLS", examples(12)))
"""Number of kills; small by default, so that the tests stay quick."""


def filled(directory: Path, steps: int = 60, seed: int = 0, **given: Any) -> tuple[Any, list[Any]]:
    """Return a buffer and its episodes."""
    storage, stream = buffer(directory, **given), Stream(2, "vector", False, np.random.default_rng(seed))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    storage.flush()
    return storage, list(storage.episodes())


def opened_and_read(directory: Path) -> list[Any]:
    storage = buffer(directory)
    try:
        return list(storage.episodes())
    finally:
        storage.close()


def same(one: Any, two: Any) -> bool:
    return np.array_equal(one.observations, two.observations) and np.array_equal(
        one.fields["Reward"], two.fields["Reward"]
    )


@pytest.mark.long
def test_commits_survive_a_kill_at_any_instant(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, killing_episodic.__file__, str(tmp_path), str(KILLS), "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60 + 3 * KILLS,
    )
    assert finished.returncode == 0, finished.stderr
    print(finished.stdout)  # noqa: T201
    figures = json.loads(finished.stdout)
    assert figures["kills"] == KILLS
    assert figures["checkpoints"] > 0
    assert figures["segments"] > 3


def chunk(directory: Path, place: int = 0) -> Path:
    """A file of observations."""
    paths = (directory / "episodes" / "Observation").glob("c.*")
    return sorted(paths, key=lambda path: int(path.name.split(".")[1]))[place]


def flip(path: Path, place: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 4
    path.write_bytes(data)


def test_the_write_ahead_log_can_be_repaired_by_itself(tmp_path: Path) -> None:
    storage, episodes = filled(tmp_path)
    storage.close()
    flip(min((tmp_path / "wal").glob("*.steps")), 0.4)
    with pytest.raises(DamageError) as found:
        buffer(tmp_path)
    assert f"storages.persistent.repair('{tmp_path / 'wal'}')" in str(found.value)
    assert repair(tmp_path / "wal").dropped
    assert len(opened_and_read(tmp_path)) == len(episodes)
    assert repair(tmp_path).dropped == ()


@pytest.mark.long
def test_damage_found_while_drawing_raises_an_error_and_other_episodes_are_drawn(tmp_path: Path) -> None:
    storage, _ = filled(tmp_path, 1500, size=None, memory_bytes=20_000)
    path = chunk(tmp_path, 5)
    flip(path)
    found: list[str] = []
    for _ in range(300):
        try:
            list(storage.generate_batches(5, 32))
        except DamageError as damage:
            found.append(str(damage))
    assert 0 < len(found) < 20
    assert all(str(path) in damage and "episodes, transitions" in damage for damage in found)
    storage.close()


def test_chunks_without_a_record_are_deleted_and_incomplete_records_ignored(tmp_path: Path) -> None:
    storage, episodes = filled(tmp_path)
    storage.close()
    stray = chunk(tmp_path, -1).with_name("c.9999.0")
    stray.write_bytes(b"half a chu")
    log = max(tmp_path.glob("*.segments"))
    with log.open("ab") as file:
        file.write(log.read_bytes()[:70])
    again = opened_and_read(tmp_path)
    assert len(again) == len(episodes)
    assert not stray.exists()


def test_a_directory_with_other_content_is_refused(tmp_path: Path) -> None:
    storage, _ = filled(tmp_path / "episodes")
    storage.close()
    of_another_kind = r"holds a storage of another kind, with episodes\.json .* storages\.datasets\.open_dataset"
    with pytest.raises(PersistenceError, match=of_another_kind):
        ReplayBuffer.create_factory(size=10, directory=tmp_path / "episodes")("cpu", None, None, None)
    with pytest.raises(PersistenceError, match=of_another_kind):
        read_state(tmp_path / "episodes")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(PersistenceError, match=r"holds something else \(thesis\.tex\)"):
        buffer(tmp_path / "other")


def insert(storage: Any, stream: Stream, model: EpisodesModel, steps: int = 1) -> None:
    for _ in range(steps):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)


def inserted_until_refused(storage: Any, stream: Stream, model: EpisodesModel) -> str:
    """Insert until an error is raised; return its message."""
    with pytest.raises(PersistenceError) as refused:
        insert(storage, stream, model, 1000)
    return str(refused.value)


def assert_in_memory(model: EpisodesModel, storage: Any) -> None:
    transitions = model.transitions
    assert len(storage) == len(transitions)
    for key, rows in storage.get_all_buffer_data().items():
        for row, (sample, env) in enumerate(transitions):
            assert np.array_equal(rows[row, 0].numpy(), np.asarray(sample[key][env])), (key, row)


def test_a_deleted_directory_is_reported_and_the_data_in_memory_remains(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path / "there", commit_every=4), Stream(2, "vector", False, np.random.default_rng(0))
    model = EpisodesModel(40)
    insert(storage, stream, model, 60)
    storage.flush()
    shutil.rmtree(tmp_path / "there")
    assert str(tmp_path / "there") in inserted_until_refused(storage, stream, model)
    assert_in_memory(model, storage)
    with pytest.raises(PersistenceError, match="there"):
        storage.close()
    assert_in_memory(model, storage)
    assert not (tmp_path / "there").exists(), "the directory was silently created again"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user and change it back")
def test_a_lost_write_permission_is_reported_and_writing_continues_once_granted(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path / "kept", commit_every=4), Stream(2, "vector", False, np.random.default_rng(0))
    model = EpisodesModel(40)
    insert(storage, stream, model, 60)
    storage.flush()
    os.seteuid(65534)
    try:
        reported = inserted_until_refused(storage, stream, model)
        assert_in_memory(model, storage)
    finally:
        os.seteuid(0)
    assert "Permission denied" in reported
    assert "grant write permission" in reported
    insert(storage, stream, model, 20)
    storage.close()
    again = buffer(tmp_path / "kept")
    model.assert_holds(again)
    again.close()


def test_a_directory_of_a_newer_format_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    storage, _ = filled(tmp_path)
    storage.close()
    manifest = tmp_path / "episodes.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 7}))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for read_only in (False, True):
        with pytest.raises(PersistenceError, match=r"episodes.json has format 7, and this version of .* reads 5"):
            buffer(tmp_path, read_only=read_only)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# Readers


def test_several_readers_follow_one_writer(tmp_path: Path) -> None:
    storage, _ = filled(tmp_path, size=200)
    storage._directory.flush_queue.seal(0)
    storage.flush()
    readers = [buffer(tmp_path, size=200, read_only=True) for _ in range(2)]
    stream = Stream(2, "vector", False, np.random.default_rng(1))
    for reader in readers:
        assert contents(reader) == contents(storage)
        with pytest.raises(PersistenceError, match="it is read only"):
            reader.insert_transition(stream.step())
    for _ in range(400):
        storage.insert_transition(stream.step())
    storage.close()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    for reader in readers:
        assert len(updated(reader, 0)) == 3
        reader.refresh()
        assert contents(reader) == contents(storage)
        assert len(list(reader.episodes())) == len(list(storage.episodes()))
        reader.close()
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


def test_a_reader_of_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PersistenceError, match="holds no episodes yet"):
        buffer(tmp_path / "nothing", read_only=True)
    assert not (tmp_path / "nothing").exists()


# Ancestors


def test_a_buffer_continues_from_an_ancestor_and_leaves_it_unchanged(tmp_path: Path) -> None:
    old, episodes = filled(tmp_path / "old", size=200)
    old.close()
    files = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    given = {"size": 150, "ancestor": tmp_path / "old"}
    for seed in range(3):
        new, all_episodes = filled(tmp_path / "new", 40, seed=seed + 5, **given)
        assert len(new) <= 150
        new.close()
        again = buffer(tmp_path / "new", **given)
        assert contents(again) == contents(new)
        again.close()
        if seed == 0:
            assert any(same(episode, all_episodes[0]) for episode in episodes)
    assert files == {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    own = sum(path.stat().st_size for path in (tmp_path / "new").rglob("c.*"))
    assert own > 0


def test_a_damaged_rollback_marker_is_named_and_repaired(tmp_path: Path) -> None:
    storage, episodes = filled(tmp_path)
    note = {"position": {"commit": 1, "checksum": 0}, "archive": {"commit": 1, "checksum": 0}}
    storage.close()
    write_marker(tmp_path, note, durable=False)
    path = tmp_path / MARKER_NAME
    path.write_text(path.read_text().replace('"commit": 1', '"commit": 2'))
    with pytest.raises(DamageError, match=r"rollback\.json is damaged.*repair"):
        buffer(tmp_path)
    assert [text for text in repair(tmp_path).dropped if MARKER_NAME in text]
    assert len(opened_and_read(tmp_path)) == len(episodes)
