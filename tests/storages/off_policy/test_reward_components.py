"""Each component of a reward is summed over n-step windows exactly as the reward is, by every replay storage."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    Episode,
    Episodes,
    EREBuffer,
    GAEBuffer,
    HERBuffer,
    MixedStorage,
    NStepReplayBuffer,
    PERBuffer,
    SampleError,
    Sequences,
)
from storages.datasets import open_dataset, write_dataset
from storages.sharded import LocalShards, ShardedReplay
from storages.transition import ERRORS, IREW, REW, REWC
from tests.storages.off_policy.test_her_buffer import GoalStream
from tests.support.episodes import episode
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import ALGORITHM, Model, Stream, contents, equal, replay_buffer, through_a_file
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, assert_windows

SIZE = 12
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
WINDOWS: dict[str, Sequences | Episodes | None] = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "sequences across episodes": Sequences(4, overlap=1, across_episodes=True),
    "episodes": Episodes(whole=False),
    "packed episodes": Episodes(packed=True, whole=False),
    "pieces of episodes": Episodes(longest=3, whole=False),
}
CLASSES: dict[str, Any] = {
    "n steps": (NStepReplayBuffer, {}),
    "priority": (PERBuffer, PRIORITIES),
    "recency": (EREBuffer, PRIORITIES | {"eta": 0.999, "cmin": 6}),
}


def made(name: str, **hyper_parameters: Any) -> Any:
    cls, own = CLASSES[name]
    storage = cls.create_factory(**own, **hyper_parameters)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage


def stream_of(num_envs: int = 2, components: int = 3, seed: int = 0, recurrent: bool = False) -> Stream:
    return Stream(num_envs, "vector", recurrent, np.random.default_rng(seed), components=components)


def filled(name: str, steps: int = 30, components: int = 3, **hyper_parameters: Any) -> Any:
    storage, stream = made(name, size=SIZE, **hyper_parameters), stream_of(components=components)
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage


def assert_batches(episodic: Episodic, storage: Any, random: np.random.Generator) -> None:
    for batch in storage.generate_batches(2, 5):
        assert batch[REWC].dtype == torch.float32
        assert batch[REWC].shape[:-1] == batch[REW].shape[:-1]
        assert_windows(episodic, batch, storage.sequences, storage.n_step)
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=batch[REW].shape))})


@settings(max_examples=examples(60), deadline=None)
@given(
    name=st.sampled_from(sorted(CLASSES)),
    n_step=st.sampled_from([1, 2, 3, 100]),
    window=st.sampled_from(sorted(WINDOWS)),
    num_envs=st.integers(1, 3),
    components=st.integers(1, 4),
    recurrent=st.booleans(),
    prefetch=st.sampled_from([0, 1]),
    keep_on_device=st.booleans(),
    parts=st.lists(st.integers(1, 18), min_size=1, max_size=4),
    seed=st.integers(0, 2**20),
)
def test_components_equal_those_of_a_reference_model(
    name: str,
    n_step: int,
    window: str,
    num_envs: int,
    components: int,
    recurrent: bool,
    prefetch: int,
    keep_on_device: bool,
    parts: list[int],
    seed: int,
) -> None:
    hyper_parameters = {
        "size": SIZE,
        "n_step": n_step,
        "sequences": WINDOWS[window],
        "prefetch": prefetch,
        "keep_on_device": keep_on_device,
    }
    storage, episodic = made(name, **hyper_parameters), Episodic(Model(SIZE), num_envs)
    random, stream = np.random.default_rng(seed), stream_of(num_envs, components, seed, recurrent)
    for number, steps in enumerate(parts):
        for _ in range(steps):
            sample = stream.step()
            storage.insert_transition(sample)
            episodic.insert(sample)
        assert_batches(episodic, storage, random)
        if number == 0:
            state = through_a_file(storage.state_dict())
            storage = made(name, **hyper_parameters)
            storage.load_state_dict(state)
        elif number == 1:
            storage = copy.deepcopy(storage)
        assert_batches(episodic, storage, random)


def test_a_component_that_equals_the_reward_has_the_sums_of_the_reward() -> None:
    storage, stream = made("n steps", size=SIZE, n_step=4), stream_of(components=0)
    for _ in range(30):
        sample = stream.step()
        storage.insert_transition(sample | {REWC: np.hstack([sample[REW], -2 * sample[REW]]), IREW: sample[REW]})
    (batch,) = storage.generate_batches(1, 100)
    assert torch.equal(batch[REWC], torch.cat([batch[REW], -2 * batch[REW]], 1))
    assert torch.equal(batch[IREW], batch[REW])


def test_components_of_double_precision_keep_it() -> None:
    storage, stream = made("n steps", size=SIZE, n_step=2), stream_of()
    for _ in range(20):
        sample = stream.step()
        storage.insert_transition(sample | {REWC: sample[REWC].astype(np.float64) + 1e-12})
    (batch,) = storage.generate_batches(1, 9)
    assert batch[REWC].dtype == torch.float64


@pytest.mark.parametrize("dtype", [np.float16, np.int64])
def test_components_of_integers_or_half_precision_are_summed_in_single_precision(dtype: Any) -> None:
    halves, singles = made("n steps", size=SIZE, n_step=3), made("n steps", size=SIZE, n_step=3)
    stream = stream_of()
    for _ in range(30):
        sample = stream.step()
        rounded = sample[REWC].astype(dtype)
        halves.insert_transition(sample | {REWC: rounded})
        singles.insert_transition(sample | {REWC: rounded.astype(np.float32)})
    ours, theirs = (next(storage.generate_batches(1, 9)) for storage in (halves, singles))
    assert ours[REWC].dtype == torch.float32
    assert torch.equal(ours[REWC], theirs[REWC])


def test_bfloat16_components_are_stored_in_single_precision() -> None:
    storage, sample = made("n steps", size=SIZE), stream_of().step()
    components = torch.from_numpy(sample[REWC]).bfloat16()
    storage.insert_transition(sample | {REWC: components})
    assert torch.equal(storage.get_all_buffer_data()[REWC][0], components.float())


@pytest.mark.parametrize("n_step", [1, 3])
def test_components_are_there_after_a_directory_is_reopened(n_step: int, tmp_path: Path) -> None:
    def opened() -> Any:
        return made("priority", size=SIZE, n_step=n_step, directory=tmp_path, commit_every=3)

    storage, episodic = opened(), Episodic(Model(SIZE), 2)
    random, stream = np.random.default_rng(0), stream_of()
    for steps in (7, 20):
        for _ in range(steps):
            sample = stream.step()
            storage.insert_transition(sample)
            episodic.insert(sample)
        storage.close()
        storage = opened()
        assert_batches(episodic, storage, random)
    storage.close()


@pytest.mark.parametrize(("size", "window"), [(5, "transitions"), (40, "episodes")])
def test_components_of_episodes_on_disk_are_summed_to_the_end_of_the_episode(
    size: int, window: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"size": size, "n_step": 3, "sequences": WINDOWS[window], "commit_every": 4}
    stream, model = stream_of(seed=1, recurrent=True), EpisodesModel(size)
    storage = buffer(tmp_path, "vector", **given)
    for _ in range(3):
        for _ in range(12):
            sample = stream.step()
            storage.insert_transition(sample)
            model.insert(sample)
        storage.close()
        storage = buffer(tmp_path, "vector", **given)
        assert_batches(model.windows(), storage, np.random.default_rng(2))
    storage.close()


def test_slices_carry_components_to_another_storage() -> None:
    storage, other = filled("n steps", n_step=2), made("n steps", size=SIZE, n_step=2)
    other.insert_data_slice(storage.get_data_slice(0, SIZE))
    assert contents(other) == contents(storage)
    replaced = np.arange(SIZE * 6, dtype=np.float32).reshape(SIZE, 2, 3)
    other.insert_single_tensor_slice(REWC, replaced)
    np.testing.assert_array_equal(other.get_all_buffer_data()[REWC], replaced)


def test_shards_and_mixes_give_the_components_of_their_storages() -> None:
    factory = NStepReplayBuffer.create_factory(size=SIZE, n_step=2)
    group = LocalShards([lambda: factory("cpu", None, ALGORITHM, None)])
    replay, twin = ShardedReplay(group, batches_at_once=1, rounds_ahead=0), factory("cpu", None, ALGORITHM, None)
    replay.seed(3)
    twin.seed(np.random.SeedSequence(3, spawn_key=(0,)))
    data = filled("n steps").get_all_buffer_data()
    replay.insert_data_slice(data)
    twin.insert_data_slice(data)
    assert equal(next(replay.generate_batches(1, 8)), next(twin.generate_batches(1, 8)))
    storages = {"one": filled("n steps", n_step=2), "two": filled("priority", n_step=2)}
    (batch,) = MixedStorage(storages, {"one": 0.5, "two": 0.5}).generate_batches(1, 8)
    assert batch[REWC].shape == (8, 3)


@pytest.mark.parametrize("format_", ["minari-hdf5", "npz"])
def test_data_sets_keep_components(format_: str, tmp_path: Path) -> None:
    if format_ == "minari-hdf5":
        pytest.importorskip("minari")
        pytest.importorskip("h5py")
    one, path = episode(4), tmp_path / ("written.npz" if format_ == "npz" else "written")
    components = np.arange(12, dtype=np.float32).reshape(4, 3)
    with_components = Episode(one.observations, {**one.fields, REWC: components}, one.terminated, one.truncated)
    write_dataset(path, iter([with_components]), format=format_)
    np.testing.assert_array_equal(next(iter(open_dataset(path))).fields[REWC], components)


@pytest.mark.parametrize(
    "components", [np.zeros(2), np.zeros((2, 3, 1)), np.zeros((2, 0)), {"a": np.zeros((2, 1))}], ids=str
)
def test_components_that_are_no_vector_are_refused(components: Any) -> None:
    storage = replay_buffer(SIZE)
    with pytest.raises(SampleError, match="RewardComponents must have shape"):
        storage.insert_transition(stream_of(components=0).step() | {REWC: components})
    storage.insert_transition(stream_of().step())


def test_components_that_are_not_finite_are_refused_by_name() -> None:
    storage, sample = replay_buffer(SIZE), stream_of().step()
    sample[REWC][1, 2] = np.nan
    with pytest.raises(SampleError, match="RewardComponents of environment 1 is nan at step 0"):
        storage.insert_transition(sample)


@pytest.mark.parametrize("her_function", [None, lambda *fields: fields[:5]])
def test_hindsight_refuses_components_whose_values_for_other_goals_are_unknown(her_function: Any) -> None:
    envs = type("Envs", (), {"num_envs": 2, "compute_reward": staticmethod(lambda *given: np.zeros(len(given[0])))})()
    storage = HERBuffer.create_factory(size=SIZE, her_function=her_function)("cpu", None, ALGORITHM, envs)
    sample = GoalStream(2, np.random.default_rng(0)).step()
    with pytest.raises(SampleError, match="hindsight recomputes rewards, and no function gives their components"):
        storage.insert_transition(sample | {REWC: np.zeros((2, 3), np.float32)})
    storage.insert_transition(sample)
    assert len(storage) == 2


def test_rollouts_keep_components_as_they_are() -> None:
    storage = GAEBuffer.create_factory(size=4)("cpu", None, ALGORITHM, None)
    stream = stream_of()
    samples = [stream.step() | {"Value": np.zeros((2, 1), np.float32)} for _ in range(4)]
    for sample in samples:
        storage.insert_transition(sample)
    np.testing.assert_array_equal(storage.get_all_buffer_data()[REWC], np.stack([s[REWC] for s in samples]))
