"""Each component of a reward is summed over n-step windows exactly as the reward is, by every replay storage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    Episode,
    EREBuffer,
    GAEBuffer,
    HERBuffer,
    MixedStorage,
    NStepReplayBuffer,
    PERBuffer,
    SampleError,
)
from storages.datasets import open_dataset, write_dataset
from storages.sharded import LocalShards, ShardedReplay
from storages.transition import IREW, REW, REWC
from tests.storages.off_policy.test_her_buffer import GoalStream
from tests.support.episodes import episode
from tests.support.model import ALGORITHM, Stream, contents, equal, replay_buffer

SIZE = 12
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
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
