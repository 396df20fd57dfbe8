"""Samples that do not fit a storage of an earlier process, or a loaded state: the error says where that is."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storages
from storages import SampleError
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW
from tests.support.model import ALGORITHM

KINDS: dict[str, Any] = {
    "steps": lambda **given: storages.PERBuffer.create_factory(size=50, alpha=0.5, **given),
    "episodes": lambda **given: storages.PersistentEpisodicBuffer.create_factory(size=50, **given),
}


def made(kind: str, **given: Any) -> Any:
    return KINDS[kind](**given)("cpu", None, ALGORITHM, None)


def step(envs: int = 2, width: int = 4, dtype: type = np.float32, **others: Any) -> dict[str, Any]:
    obs, flag = np.zeros((envs, width), dtype), np.zeros((envs, 1), np.bool_)
    actions, rewards = np.zeros((envs, 1), np.int64), np.zeros((envs, 1), np.float32)
    return {OBS: obs, OBS2: obs, DONE: flag, DONE2: flag, ACT: actions, REW: rewards} | others


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another space": (step(width=5), r"had shape \(2, 4\) in the first sample, now it has \(2, 5\)"),
    "more environments": (step(envs=3), r"had shape \(2, .\) in the first sample, now it has \(3, .\)"),
    "another dtype": (step(dtype=np.float64), "had dtype float32 in the first sample, now it has float64"),
    "another field": (step(Extra=np.zeros((2, 1), np.float32)), "Extra was not in the first sample"),
    "a missing field": ({key: value for key, value in step().items() if key != ACT}, "Action was in the first sample"),
}


@pytest.mark.parametrize("bad", list(BAD))
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_sample_that_does_not_fit_an_earlier_process_is_refused_with_the_directory(
    kind: str, bad: str, tmp_path: Path
) -> None:
    sample, message = BAD[bad]
    storage = made(kind, directory=tmp_path / "kept")
    storage.insert_transition(step())
    with pytest.raises(SampleError, match=message) as error:
        storage.insert_transition(sample)
    assert "earlier process" not in str(error.value)
    storage.close()
    storage = made(kind, directory=tmp_path / "kept")
    with pytest.raises(SampleError, match=message) as error:
        storage.insert_transition(sample)
    assert re.search(rf"{re.escape(str(tmp_path / 'kept'))}.*, which an earlier process wrote", str(error.value))
    assert "begin an empty storage" in str(error.value)
    storage.insert_transition(step())
    storage.close()


def test_a_sample_that_does_not_fit_a_loaded_state_is_refused_as_such() -> None:
    storage = made("steps")
    storage.insert_transition(step())
    loaded = made("steps")
    loaded.load_state_dict(storage.state_dict())
    with pytest.raises(SampleError, match=r"now it has \(2, 5\).*of the state that was loaded"):
        loaded.insert_transition(step(width=5))
    assert len(loaded) == 2
