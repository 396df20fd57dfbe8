"""Read-only buffers of episodes beside a writer: files added or deleted meanwhile are not reported as damage."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.datasets import open_dataset
from storages.persistent import PersistenceError
from storages.persistent.episodes import segment_store
from tests.support.episodic import buffer, updated
from tests.support.histories import small_files
from tests.support.model import Stream, contents, equal

MEMORY_BYTES = 20_000


@pytest.mark.long
def test_segments_deleted_by_a_writer_are_not_damage_for_a_reader(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path, size=1500, memory_bytes=MEMORY_BYTES)
    for _ in range(800):
        storage.insert_transition(stream.step())
    storage.flush()
    reader = buffer(tmp_path, size=1500, read_only=True, memory_bytes=MEMORY_BYTES)
    episodes = reader.episodes()
    next(episodes)
    assert not reader._segment_cache.holds_all
    for _ in range(900):
        storage.insert_transition(stream.step())
    storage.flush()
    assert not list(episodes), "all earlier episodes have been deleted"
    for _ in range(20):
        list(reader.generate_batches(5, 32))
    reader.close()
    storage.close()


def test_a_data_set_of_a_small_buffer_outlives_the_episodes_that_the_writer_drops(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path, size=200)
    for _ in range(300):
        storage.insert_transition(stream.step())
    storage.flush()
    there = list(storage.episodes())
    dataset = open_dataset(tmp_path)
    for _ in range(300):
        storage.insert_transition(stream.step())
    storage.flush()
    read = list(dataset)
    assert len(read) == len(dataset) == len(there)
    for one, other in zip(read, there, strict=True):
        np.testing.assert_equal([one.observations, one.fields], [other.observations, other.fields])
    storage.close()


def test_a_data_set_is_opened_while_the_writer_drops_what_is_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path, size=200)

    def write(steps: int) -> None:
        for _ in range(steps):
            storage.insert_transition(stream.step())
        storage.flush()

    write(120)
    read_segment, times = segment_store.read_segment, 0

    def read_later(*of: Any) -> Any:
        nonlocal times
        times += 1
        if times % 3 == 2 and times < 10:
            write(120)
        return read_segment(*of)

    monkeypatch.setattr(segment_store, "read_segment", read_later)
    read = list(open_dataset(tmp_path))
    assert times > 10
    for one, other in zip(read, storage.episodes(), strict=True):
        np.testing.assert_equal([one.observations, one.fields], [other.observations, other.fields])
    storage.close()


def test_a_reader_follows_a_rollback_of_the_writer(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path, size=200)
    for _ in range(40):
        storage.insert_transition(stream.step())
    state = storage.state_dict()
    for _ in range(40):
        storage.insert_transition(stream.step())
    storage._directory.flush_queue.seal(0)
    storage.flush()
    reader = buffer(tmp_path, size=200, read_only=True)
    storage.load_state_dict(state)
    for _ in range(60):
        storage.insert_transition(stream.step())
    storage._directory.flush_queue.seal(0)
    storage.flush()
    reader.refresh()
    assert contents(reader) == contents(storage)
    reader.close()
    storage.close()


@pytest.mark.long
def test_readers_open_and_refresh_while_files_are_added_and_deleted(tmp_path: Path) -> None:
    with small_files():
        storage = buffer(tmp_path, size=60, commit_every=4)
        stream, stop = Stream(2, "vector", False, np.random.default_rng(0)), threading.Event()
        for _ in range(60):
            storage.insert_transition(stream.step())
        storage.flush()

        def write() -> None:
            while not stop.is_set():
                for _ in range(10):
                    storage.insert_transition(stream.step())
                storage.flush()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            reader, begun, refreshed = buffer(tmp_path, size=60, read_only=True), time.process_time(), 0
            while time.process_time() < begun + 1.5 or not refreshed:
                reader.refresh()
                list(reader.generate_batches(2, 8))
                buffer(tmp_path, size=60, read_only=True).close()
                refreshed += 1
        finally:
            stop.set()
            writer.join()
        reader.close()
        storage.close()


@pytest.mark.long
def test_a_read_only_buffer_saves_and_loads_its_state(tmp_path: Path) -> None:
    storage, stream = (
        buffer(tmp_path, size=3000, memory_bytes=MEMORY_BYTES),
        Stream(2, "vector", False, np.random.default_rng(0)),
    )
    for _ in range(800):
        storage.insert_transition(stream.step())
    storage.flush()
    given = {"size": 3000, "read_only": True, "memory_bytes": MEMORY_BYTES, "alpha": 0.5}
    reader = buffer(tmp_path, **given)
    reader.seed(3)
    updated(reader, 1)
    state = reader.state_dict()
    wanted = updated(reader, 2)
    for _ in range(200):
        storage.insert_transition(stream.step())
    storage.close()
    other = buffer(tmp_path, **given)
    other.load_state_dict(state)
    assert equal(updated(other, 2), wanted)
    reader.load_state_dict(state)
    assert equal(updated(reader, 2), wanted)
    for one in (reader, other):
        one.close()


def test_a_closed_read_only_buffer_refuses_to_refresh(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(40):
        storage.insert_transition(stream.step())
    storage.close()
    reader = buffer(tmp_path, read_only=True)
    reader.close()
    with pytest.raises(PersistenceError, match="was closed"):
        reader.refresh()
