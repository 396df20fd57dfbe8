"""The first steps of a buffer of episodes on disk, and observations without numbers."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.persistent import PersistenceError, repair
from storages.transition import OBS, OBS2
from tests.support.disk import Fault, watched
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import Stream


def test_a_first_step_that_could_not_be_written_can_be_inserted_again(tmp_path: Path) -> None:
    stream, model = Stream(2, "vector", False, np.random.default_rng(0)), EpisodesModel(40)
    storage = buffer(tmp_path / "kept")
    samples = [stream.step() for _ in range(30)]
    with watched(tmp_path, Fault("ENOSPC", 0, 4)) as disk:
        for tried in range(4):
            with pytest.raises(PersistenceError, match=r"cannot be written: .*No space left on device"):
                storage.insert_transition(samples[0])
            assert disk.failed == tried + 1
        for sample in samples:
            storage.insert_transition(sample)
            model.insert(sample)
    model.assert_holds(storage)
    storage.close()
    again = buffer(tmp_path / "kept")
    model.assert_holds(again)
    again.close()


def with_empty_part(observation: Any) -> dict[str, Any]:
    return {"empty": np.zeros((len(observation), 0), np.float32), "seen": observation}


def test_an_observation_without_numbers_is_kept_without_files(tmp_path: Path) -> None:
    stream, model = Stream(2, "vector", False, np.random.default_rng(0)), EpisodesModel(40)
    storage = buffer(tmp_path, alpha=0.5)
    for _ in range(60):
        sample = stream.step()
        sample |= {key: with_empty_part(sample[key]) for key in (OBS, OBS2)}
        storage.insert_transition(sample)
        model.insert(sample)
    storage.close()
    assert not list(tmp_path.rglob("empty/c.*"))
    again = buffer(tmp_path, alpha=0.5)
    model.assert_holds(again)
    again.close()
    seen = min(tmp_path.rglob("seen/c.*"), key=lambda path: path.stat().st_mtime_ns)
    os.truncate(seen, 20)
    assert len(repair(tmp_path).dropped) == 1
    left = buffer(tmp_path, alpha=0.5)
    assert 0 < len(left) < len(model.transitions)
    left.close()
