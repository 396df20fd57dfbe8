"""A buffer of whole episodes on disk has the content of a list of episodes, before and after it is reopened."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    EmptyStorageError,
    Episodes,
    PersistentEpisodicBuffer,
    RateLimit,
    RateLimitError,
    SampleError,
    Sequences,
)
from storages.persistent import PersistenceError
from tests.support.episodic import EpisodesModel, Twins, buffer, updated, with_a_pinned_position
from tests.support.model import KINDS, Stream, contents, equal, through_a_file
from tests.support.profiles import examples

PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": "largest"}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "n steps": {"n_step": 3},
    "priority": PRIORITIES,
    "sequences": {"sequences": Sequences(4, burn_in=2), **PRIORITIES},
    "strides": {"sequences": Sequences(4, overlap=1), "n_step": 2, **PRIORITIES},
    "episodes": {"sequences": Episodes(), **PRIORITIES},
    "packed episodes": {"sequences": Episodes(packed=True)},
    "pieces": {"sequences": Episodes(longest=3, whole=False), "n_step": 2, **PRIORITIES},
    "random pieces": {"sequences": Episodes(max_steps=3), "n_step": 2, **PRIORITIES},
    "unbounded": {"size": None, "memory_bytes": 1_000_000},
}


@settings(max_examples=examples(25), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 3),
    recurrent=st.booleans(),
    size=st.sampled_from([1, 5, 40]),
    commit_every=st.sampled_from([1, 7, 100]),
    seed=st.integers(0, 2**20),
    stretches=st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=3),
)
def test_a_buffer_has_the_content_of_a_list_of_episodes(
    kind: str,
    num_envs: int,
    recurrent: bool,
    size: int,
    commit_every: int,
    seed: int,
    stretches: list[tuple[int, bool]],
) -> None:
    directory = Path(tempfile.mkdtemp())
    stream, model = Stream(num_envs, kind, recurrent, np.random.default_rng(seed)), EpisodesModel(size)

    def made() -> Any:
        return buffer(directory, kind, num_envs, size, commit_every=commit_every)

    storage = made()
    try:
        for steps, again in stretches:
            for _ in range(steps):
                sample = stream.step()
                storage.insert_transition(sample)
                model.insert(sample)
            for one in (storage, stream, model):
                one.end_episode([steps % num_envs])
            if again:
                storage.close()
                storage = made()
            model.assert_holds(storage)
    finally:
        storage.close()
        shutil.rmtree(directory)


@pytest.mark.quick_share(0.1, long=0.6)
@pytest.mark.parametrize("way", WAYS)
def test_a_reopened_buffer_draws_the_same_batches(way: str, tmp_path: Path) -> None:
    twins = Twins(tmp_path, "dict of frames", commit_every=5, **WAYS[way])
    for steps in (1, 3, 30, 60, 25):
        twins.insert(steps)
        twins.update()
        twins.reopen()
        twins.update()
    assert len(twins.one) == len(twins.two) > 20
    twins.close()


@pytest.mark.quick_share(0.1, long=0.6)
@pytest.mark.parametrize("way", WAYS)
def test_after_loading_a_state_the_same_batches_are_drawn(way: str, tmp_path: Path) -> None:
    twins = Twins(tmp_path, "frames", commit_every=4, **WAYS[way])
    for _ in range(2):
        twins.insert(30)
        twins.update()
        state = through_a_file(twins.one.state_dict())
        twins.two.state_dict()
        later = Stream(2, "frames", True, np.random.default_rng(5))
        for _ in range(50):
            twins.one.insert_transition(later.step())
        if len(twins.one):
            updated(twins.one, 9)
        twins.one.close()
        twins.one = twins.opened()
        twins.one.load_state_dict(state)
        twins.update()
    twins.insert(40)
    twins.update()
    twins.reopen()
    twins.update()
    twins.close()


def test_loading_the_state_of_an_empty_buffer_empties_the_buffer(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    state = storage.state_dict()
    for _ in range(50):
        storage.insert_transition(stream.step())
    storage.flush()
    storage.load_state_dict(state)
    assert len(storage) == 0
    model, stream = EpisodesModel(40), Stream(2, "vector", False, np.random.default_rng(1))
    for _ in range(50):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    model.assert_holds(storage)
    storage.close()


def test_a_state_whose_commits_were_deleted_is_refused_without_changes(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path, size=20), Stream(2, "vector", False, np.random.default_rng(0))
    states = []
    for _ in range(4):
        for _ in range(60):
            storage.insert_transition(stream.step())
        storage.flush()
        states.append(storage.state_dict())
    before = updated(storage, 0)
    with pytest.raises(PersistenceError, match="nothing was changed"):
        storage.load_state_dict(states[0])
    storage.load_state_dict(states[-1])
    assert equal(updated(storage, 0), before)
    storage.close()


def test_reset_deletes_the_episodes_on_disk(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(60):
        storage.insert_transition(stream.step())
    storage.reset()
    assert len(storage) == 0
    assert not list((tmp_path / "episodes").rglob("c.*"))
    model = EpisodesModel(40)
    for _ in range(60):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    model.gone = storage.ring.start
    model.assert_holds(storage)
    storage.close()
    storage = buffer(tmp_path)
    model.assert_holds(storage)
    storage.close()


@pytest.mark.parametrize("kind", ["vector", "dict", "frames"])
def test_added_episodes_are_returned_unchanged(kind: str, tmp_path: Path) -> None:
    source, stream = buffer(tmp_path / "source", kind), Stream(2, kind, True, np.random.default_rng(0))
    for _ in range(30):
        source.insert_transition(stream.step())
    copy = buffer(tmp_path / "copy", kind, size=None, memory_bytes=1_000_000)
    for episode in source.episodes():
        copy.add_episode(episode)
    copy.flush()
    shutil.copytree(tmp_path / "copy", tmp_path / "killed")
    again = buffer(tmp_path / "killed", kind, size=None, memory_bytes=1_000_000)
    for one, two, three in zip(source.episodes(), copy.episodes(), again.episodes(), strict=True):
        for other in (two, three):
            assert (one.terminated, one.truncated) == (other.terminated, other.truncated)
            assert one.fields.keys() == other.fields.keys()
            for key, value in one.fields.items():
                assert np.array_equal(value, other.fields[key])
            for name in one.observations if kind == "dict" else [...]:
                assert np.array_equal(one.observations[name], other.observations[name])  # type: ignore[index]
    for storage in (source, copy, again):
        storage.close()


def test_zarr_reads_the_files_of_a_buffer(tmp_path: Path) -> None:
    storage, stream = (
        buffer(tmp_path, "dict", size=None, memory_bytes=1_000_000),
        Stream(2, "dict", False, np.random.default_rng(0)),
    )
    for _ in range(60):
        storage.insert_transition(stream.step())
    storage.close()
    group = zarr.open_group(tmp_path / "episodes", mode="r")
    episode = next(iter(storage.episodes()))
    for name in ("a", "b"):
        array = group[f"Observation/{name}"]
        assert isinstance(array, zarr.Array)
        assert np.array_equal(array[: len(episode) + 1], episode.observations[name])
    assert {"Action", "Reward", "Done", "NextDone", "NextTruncated", "Observation"} == set(group)


def test_an_invalid_step_is_refused_and_not_stored(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    model = EpisodesModel(40)
    for _ in range(20):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
        with pytest.raises(SampleError):
            storage.insert_transition(sample | {"Reward": np.full((2, 1), np.nan, np.float32)})
        with pytest.raises(SampleError):
            storage.insert_transition(sample | {"Action": np.zeros((2, 2))})
    model.assert_holds(storage)
    storage.close()


def test_an_episode_that_never_ends_is_kept_in_pieces(tmp_path: Path) -> None:
    storage, model = buffer(tmp_path, num_envs=1, size=16), EpisodesModel(16)
    state = np.zeros((1, 2), np.float32)
    for step in range(50):
        sample = {
            "Observation": state + step,
            "Done": np.array([[step == 0]]),
            "Action": np.zeros((1, 1)),
            "Reward": np.ones((1, 1), np.float32),
            "NextObservation": state + step + 1,
            "NextDone": np.array([[False]]),
            "NextTruncated": np.array([[False]]),
        }
        storage.insert_transition(sample)
        model.insert(sample)
        if step % 7 == 0:
            storage.close()
            storage = buffer(tmp_path, num_envs=1, size=16)
    model.assert_holds(storage)
    assert len(storage) == 16
    assert next(iter(storage.generate_batches(1, 8)))["Discount"].min() > 0
    storage.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"directory": __file__}, "is a file"),
        ({"ancestor": "there", "directory": "there"}, "ancestor must be another directory"),
        ({"ancestor": "there", "read_only": True}, "leave out ancestor="),
        ({"size": 5, "sequences": Sequences(8)}, "size must be at least 8"),
        ({"size": 5, "sequences": Episodes(longest=8)}, "size must be at least 8"),
        ({"n_step": 3, "sequences": Episodes(longest=8, packed=True)}, "n_step must be 1"),
        ({"memory_bytes": 0}, "memory_bytes must be at least 1"),
    ],
)
def test_invalid_hyper_parameters_are_refused_when_the_factory_is_created(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PersistentEpisodicBuffer.create_factory(**({"size": 10, "directory": "here"} | given))


@pytest.mark.parametrize("way", ["plain", "priority"])
def test_a_pinned_position_can_be_restored_by_a_rollback(way: str, tmp_path: Path) -> None:
    storage, position, model = with_a_pinned_position(tmp_path, **WAYS[way])
    assert storage.position != position
    storage.roll_back(through_a_file(position))
    model.assert_holds(storage)
    storage.close()
    storage = buffer(tmp_path, **WAYS[way])
    model.assert_holds(storage)
    storage.close()


def test_a_position_that_was_not_pinned_is_refused_once_its_episodes_were_dropped(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    model = EpisodesModel(40)
    for step in range(300):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
        if step == 60:
            storage.flush()
            position = storage.position
    storage.flush()
    with pytest.raises(PersistenceError, match="nothing was changed"):
        storage.roll_back(position)
    with pytest.raises(PersistenceError, match="nothing was changed"):
        storage.pin(position)
    model.assert_holds(storage)
    storage.close()


def test_the_position_of_an_empty_buffer_can_be_restored_by_a_rollback(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    position = storage.position
    storage.pin(position)
    for _ in range(30):
        storage.insert_transition(stream.step())
    assert len(storage)
    storage.roll_back(position)
    assert len(storage) == 0
    storage.close()


def test_a_rate_limit_counts_steps_and_added_episodes(tmp_path: Path) -> None:
    limit = RateLimit(samples_per_insert=1.0, min_size=10, tolerance=20.0)
    storage, stream = buffer(tmp_path, rate_limit=limit), Stream(2, "vector", False, np.random.default_rng(0))
    while storage.rate_limiter.may_insert():
        storage.insert_transition(stream.step())
    with pytest.raises(RateLimitError, match="allows no insertion"):
        storage.insert_transition(stream.step())
    assert storage.rate_limiter.inserted == 32
    storage.add_episode(next(storage.episodes()))
    assert storage.rate_limiter.inserted > 32
    assert len(list(storage.generate_batches(2, 12))) == 2
    storage.insert_transition(stream.step())
    counted = storage.rate_limiter.state_dict()
    storage.close()
    again = buffer(tmp_path, rate_limit=limit)
    assert again.rate_limiter.state_dict() == counted
    again.close()


def test_stored_transitions_cannot_be_replaced(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(30):
        storage.insert_transition(stream.step())
    before = contents(storage)
    with pytest.raises(ValueError, match="stored transitions cannot be replaced"):
        storage.insert_single_tensor_slice("Reward", np.ones((1, 1, 1), np.float32))
    assert contents(storage) == before
    storage.close()


def test_batches_before_the_first_end_of_an_episode_are_refused_with_the_reason(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    never = {key: np.zeros((2, 1), np.bool_) for key in ("NextDone", "NextTruncated")}
    storage.insert_transition(stream.step() | never)
    with pytest.raises(EmptyStorageError, match="no episode has ended yet, and batches hold finished episodes only"):
        storage.generate_batches(1, 4)
    with pytest.raises(ValueError, match="only a buffer with read_only=True is refreshed"):
        storage.refresh()
    storage.close()
