"""A storage reopened with its directory equals the storage before, including its next batches."""

import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storages import NStepReplayBuffer, PERBuffer, ReplayBuffer
from storages.transition import REW
from tests.support.directories import SIZE, WAYS, Pair, made, small_segments
from tests.support.model import KINDS, contents
from tests.support.profiles import examples

STEP = st.sampled_from(
    ["insert"] * 8 + ["update", "update", "flush", "reopen", "reset", "overwrite", "roll back", "end"]
)


@given(
    way=st.sampled_from(list(WAYS)),
    kind=st.sampled_from(KINDS),
    num_envs=st.sampled_from([1, 3]),
    commit_every=st.sampled_from([1, 2, 5, 1000]),
    actions=st.lists(STEP, min_size=10, max_size=60),
    seed=st.integers(0, 100),
)
@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_reopened_storage_equals_the_storage_before_after_any_actions(
    way: str, kind: str, num_envs: int, commit_every: int, actions: list[str], seed: int
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        with (
            small_segments(),
            closing(Pair(way, directory / "kept", kind, num_envs, seed, commit_every=commit_every)) as pair,
        ):
            pair.insert()
            for action in actions:
                if action == "insert":
                    pair.insert()
                elif action == "update":
                    pair.assert_same()
                elif action == "reset":
                    for one in (pair.kept, pair.twin):
                        one.reset()
                elif action == "end":
                    for one in (pair.kept, pair.twin):
                        one.end_episode([num_envs - 1])
                elif action == "overwrite":
                    for one in (pair.kept, pair.twin):
                        rewards = np.full((max(0, one.ring.live_steps - 1), num_envs, 1), 7, np.float32)
                        if len(rewards):
                            one.insert_single_tensor_slice(REW, rewards, 1)
                elif action == "flush":
                    pair.kept.flush()
                elif action == "roll back":
                    pair.kept.flush()
                    position = pair.kept.position
                    pair.kept.pin(position)
                    for _ in range(3):
                        pair.kept.insert_transition(pair._stream.step())
                    pair.kept.roll_back(position)
                else:
                    pair.reopen()
            pair.reopen()
            pair.assert_same()
            pair.insert(2)
            pair.assert_same()
    finally:
        shutil.rmtree(directory)


@pytest.mark.quick_share(0.2, long=0.6)
@pytest.mark.parametrize("way", WAYS)
def test_the_next_batches_are_the_same_after_the_ring_was_overwritten_many_times(way: str, tmp_path: Path) -> None:
    with small_segments():
        pair = Pair(way, tmp_path, "dict of frames", commit_every=4)
        for _ in range(12):
            pair.insert(9)
            pair.update()
            pair.reopen()
            pair.assert_same()
        files = sorted(path.name for path in tmp_path.iterdir())
    logs = [name for name in files if name.endswith(".steps")]
    assert [name for name in files if name not in logs] == ["closed.json", "lock", "storage.json"]
    assert len(logs) < 10, "files with only overwritten steps are deleted"
    pair.close()


def test_a_storage_can_be_reopened_without_the_environments(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, num_envs=3)
    pair.insert(5)
    pair.close()
    again = made("plain", tmp_path)
    assert (again.num_envs, len(again), again.capacity) == (3, 15, 3 * SIZE)
    assert contents(again) == contents(pair.twin)
    again.close()


def test_an_empty_storage_can_be_reopened(tmp_path: Path) -> None:
    for _ in range(3):
        storage = made("priority", tmp_path / "new" / "one")
        storage.flush()
        assert len(storage) == 0
        storage.close()


def test_a_directory_can_be_reopened_with_another_kind_of_replay(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(10)
    pair.close()
    for way in ("priority", "recency", "n steps", "hindsight"):
        storage = made(way, tmp_path)
        assert contents(storage) == contents(pair.twin)
        assert len(list(storage.generate_batches(2, 5))) == 2
        storage.close()


def test_a_state_saved_without_a_directory_can_be_loaded_into_one(tmp_path: Path) -> None:
    pair = Pair("recency", tmp_path, "frames", num_envs=1)
    pair.insert(30)
    pair.update()
    state = pair.twin.state_dict()
    pair.insert(5)
    for one in (pair.kept, pair.twin):
        one.load_state_dict(state)
    pair.reopen()
    pair.assert_same()
    pair.close()


def test_a_closed_storage_still_draws_batches(tmp_path: Path) -> None:
    pair = Pair("priority", tmp_path)
    pair.insert(5)
    pair.close()
    pair.close()
    pair.assert_same()


def test_a_garbage_collected_storage_has_committed_all_steps(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(7)
    pair.kept = None
    pair.kept = pair.open()
    pair.assert_same()
    pair.close()


def test_the_configuration_of_a_factory_has_the_directory_as_a_string(tmp_path: Path) -> None:
    factory = ReplayBuffer.create_factory(5, directory=tmp_path, commit_every=7)
    assert factory.config["hyper_parameters"]["directory"] == str(tmp_path)
    assert factory == ReplayBuffer.create_factory(5, directory=str(tmp_path), commit_every=7)


@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (ReplayBuffer, {"durable": True}, "durable=True needs a directory="),
        (PERBuffer, {"directory": __file__}, "is a file"),
        (NStepReplayBuffer, {"directory": 5}, "directory must be a str, or must be a Path, or must be None|got 5"),
        (ReplayBuffer, {"directory": "a", "commit_every": 0}, "commit_every must be at least 1, got 0"),
    ],
)
def test_invalid_hyper_parameters_are_refused_when_the_factory_is_created(cls: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls.create_factory(size=10, **given)
