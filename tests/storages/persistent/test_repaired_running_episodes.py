"""Repair of a directory of episodes keeps what was logged before the first damage of its write-ahead log."""

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages.persistent import DamageError, repair
from storages.persistent.episodes import episode_log
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import Stream
from tests.support.profiles import examples

SIZE = 1_000


def killed(directory: Path, steps: list[Any], closed_after: int) -> Path:
    """Return a directory as a process leaves it that is killed after inserting steps.

    Finished episodes are in segments if the storage was closed after them.
    """
    storage = buffer(directory / "running", size=SIZE, commit_every=5)
    for number, step in enumerate(steps, 1):
        storage.insert_transition(step)
        if number == closed_after:
            storage.close()
            storage = buffer(directory / "running", size=SIZE, commit_every=5)
    storage._directory.memtable.wal.wait()
    there = Path(shutil.copytree(directory / "running", directory / "killed"))
    storage.close()
    return there


def expected(steps: list[Any], logged: int, in_segments: int, watermarks: list[int]) -> EpisodesModel:
    """Return the episodes that are in segments, and the others of the first ``logged`` steps."""
    whole, model = EpisodesModel(SIZE), EpisodesModel(SIZE)
    for number, step in enumerate(steps):
        whole.insert(step)
        if number < logged:
            model.insert(step)
    model.finished = whole.finished[:in_segments] + model.finished[in_segments:]
    for env, watermark in zip(model.running, watermarks, strict=False):
        running = model.running[env]
        del running[: max(0, watermark - (logged - len(running)))]
    return model


@pytest.mark.long
@settings(max_examples=examples(40), deadline=None)
@given(
    inserted=st.integers(10, 60),
    closed_after=st.integers(0, 60),
    place=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_episodes_logged_before_the_damage_are_kept_and_later_ones_are_added(
    tmp_path_factory: pytest.TempPathFactory, inserted: int, closed_after: int, place: float, seed: int
) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(seed))
    steps = [stream.step() for _ in range(inserted)]
    with mock.patch.object(episode_log, "LOG_FILE_BYTES", 1_500):
        there = killed(tmp_path_factory.mktemp("episodes"), steps, closed_after)
        reader = buffer(there, size=SIZE, read_only=True)
        in_segments, watermarks = len(list(reader.episodes())), reader._directory.queue.archive.watermarks
        reader.close()
        files = sorted((there / "wal").glob("*.steps"))
        file = files[min(int(place * len(files)), len(files) - 1)]
        data = bytearray(file.read_bytes())
        data[int(place * (len(data) - 1))] ^= 4
        file.write_bytes(data)
        try:
            buffer(there, size=SIZE).close()
        except DamageError:
            done = repair(there)
            assert str(there / "wal") in "".join(done.dropped)
            assert repair(there).dropped == ()
        storage = buffer(there, size=SIZE, commit_every=5)
        model = expected(steps, storage._directory.memtable.ring.steps, in_segments, watermarks)
        model.assert_holds(storage)
        for _ in range(20):
            step = stream.step()
            storage.insert_transition(step)
            model.insert(step)
        # Committed, but not in segments.
        storage._directory.memtable.wal.flush(storage.extra_state(), None)
        again = Path(shutil.copytree(there, there.with_name("killed again")))
        for directory in (there, again):
            storage.close()
            storage = buffer(directory, size=SIZE)
            model.assert_holds(storage)
        storage.close()


def test_damage_at_the_end_of_the_log_loses_only_the_last_commits(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    steps = [stream.step() for _ in range(50)]
    there = killed(tmp_path, steps, closed_after=0)
    file = max((there / "wal").glob("*.steps"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 4
    file.write_bytes(data)
    (dropped,) = repair(there).dropped
    assert "from step 45 on, running episodes, and those that were in no segment yet, are lost" in dropped
    storage, model = buffer(there, size=SIZE), EpisodesModel(SIZE)
    for step in steps[:45]:
        model.insert(step)
    model.assert_holds(storage)
    storage.close()
