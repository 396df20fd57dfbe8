"""In every storage, inserting many steps by one call equals inserting them one by one, bit for bit."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    EmptyStorageError,
    Episodes,
    GAEBuffer,
    HERBuffer,
    PERBuffer,
    ReplayBuffer,
    SampleError,
    Storage,
    VanillaOnPolicyBuffer,
    VTraceBuffer,
)
from storages.core.windows.relabeling import ACHIEVED, DESIRED
from storages.transition import ACT, DONE2, ERRORS, FLAGS, LOGP, OBS, OBS2, REW, TRUNC2, VAL
from tests.support.directories import WAYS, made
from tests.support.episodic import buffer as episodic_buffer
from tests.support.model import ALGORITHM, KINDS, Sample, Stream, contents, environments, equal, map_leaves
from tests.support.rollouts import SummingActor, summed

# Their rewards are random numbers, not those of a reward function.
pytestmark = pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")


SIZE = 12


def together(samples: list[Sample]) -> Sample:
    """Stacks samples of shape (E, ...) to arrays of shape (steps, E, ...)."""
    return {
        key: {name: np.stack([s[key][name] for s in samples]) for name in value}
        if isinstance(value, dict)
        else np.stack([s[key] for s in samples])
        for key, value in samples[0].items()
    }


def cut_up(samples: list[Sample], random: np.random.Generator, longest: int) -> Iterator[list[Sample]]:
    first = 0
    while first < len(samples):
        end = first + int(random.integers(1, longest + 1))
        yield samples[first:end]
        first = end


def learn(storages: list[Any]) -> None:
    """Checks that all storages draw equal batches, and gives them equal errors."""
    for batches in zip(*(storage.generate_batches(2, 5) for storage in storages), strict=True):
        assert all(equal(batch, batches[0]) for batch in batches)
        for storage, batch in zip(storages, batches, strict=True):
            storage.after_gradients(batch, {ERRORS: batch[REW].double().abs()})


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize(
    ("way", "kind", "num_envs"),
    [
        (way, kind, (1, 3)[(row + column) % 2])
        for row, way in enumerate(WAYS)
        for column, kind in enumerate(KINDS)
        if (row + column) % 3 != 1
    ],
)
def test_inserting_a_slice_equals_inserting_its_steps_one_by_one(way: str, kind: str, num_envs: int) -> None:
    envs, random = environments(kind, num_envs), np.random.default_rng(5)
    one_by_one, at_once = (made(way, None, envs, SIZE) for _ in range(2))
    for storage in (one_by_one, at_once):
        storage.seed(7)
    stream = Stream(num_envs, kind, True, random)
    for samples in cut_up([stream.step() for _ in range(90)], random, SIZE + 5):
        for sample in samples:
            one_by_one.insert_transition(sample)
        data = together(samples)
        before = map_leaves(data, np.array)
        at_once.insert_data_slice(data)
        assert equal(map_leaves(data, torch.from_numpy), map_leaves(before, torch.from_numpy))
        assert contents(one_by_one) == contents(at_once)
        learn([one_by_one, at_once])
    assert contents(one_by_one) == contents(at_once)


@pytest.mark.parametrize(
    ("storage_class", "episodes", "num_envs"),
    [
        (ReplayBuffer, Episodes(), 1),
        (PERBuffer, Episodes(longest=3), 3),
        (ReplayBuffer, Episodes(packed=True), 3),
        (PERBuffer, Episodes(whole=False), 1),
        (PERBuffer, Episodes(longest=2, whole=False), 3),
    ],
)
def test_episodes_drawn_after_a_slice_equal_those_drawn_after_its_single_steps(
    storage_class: Any, episodes: Episodes, num_envs: int
) -> None:
    random = np.random.default_rng(6)
    given = {"alpha": 0.7, "epsilon": 0.1} if storage_class is PERBuffer else {}
    factory = storage_class.create_factory(size=SIZE, sequences=episodes, **given)
    one_by_one, at_once = (factory("cpu", None, ALGORITHM, None) for _ in range(2))
    for storage in (one_by_one, at_once):
        storage.seed(7)
    stream = Stream(num_envs, "vector", True, random)
    for samples in cut_up([stream.step() for _ in range(150)], random, SIZE + 5):
        for sample in samples:
            one_by_one.insert_transition(sample)
        at_once.insert_data_slice(together(samples))
        for batches in zip(*(storage.generate_batches(3, 4) for storage in (one_by_one, at_once)), strict=True):
            assert equal(*batches)
            errors = torch.from_numpy(random.exponential(size=next(b for b in batches)[REW].shape))
            for storage, batch in zip((one_by_one, at_once), batches, strict=True):
                storage.after_gradients(batch, {ERRORS: errors})
    assert contents(one_by_one) == contents(at_once)


def test_hindsight_after_a_slice_equals_hindsight_after_its_single_steps() -> None:
    random = np.random.default_rng(1)
    envs: Any = type("Envs", (), {"num_envs": 2, "compute_reward": lambda self, a, d, info: -np.abs(a - d).sum(-1)})()
    factory = HERBuffer.create_factory(size=SIZE, n_step=2, alpha=0.5, epsilon=0.1, default_error="largest")
    one_by_one, at_once = (factory("cpu", None, ALGORITHM, envs) for _ in range(2))
    stream = Stream(2, "vector", False, random)
    for storage in (one_by_one, at_once):
        storage.seed(3)
    for samples in cut_up([with_goals(stream.step()) for _ in range(60)], random, SIZE):
        for sample in samples:
            one_by_one.insert_transition(sample)
        at_once.insert_data_slice(together(samples))
        learn([one_by_one, at_once])
    assert contents(one_by_one) == contents(at_once)


def with_goals(sample: Sample) -> Sample:
    return sample | {
        key: {"observation": sample[key], ACHIEVED: sample[key][:, :2], DESIRED: np.ones_like(sample[key][:, :2])}
        for key in (OBS, OBS2)
    }


@pytest.mark.parametrize("way", ["plain", "priority", "hindsight"])
def test_commit_every_applies_within_a_slice(way: str, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    kept = made(way, tmp_path / "kept", commit_every=4)
    twin = made(way, None)
    stream = Stream(2, "vector", True, random)
    commits = []
    for samples in cut_up([stream.step() for _ in range(60)], random, SIZE):
        for storage in (kept, twin):
            storage.insert_data_slice(together(samples))
        commits.append(kept.position["commit"])
        assert kept.ring.steps - kept.observers.log.wal.written <= 4
    assert np.diff(commits).max() > 1, "several commits in one slice"
    kept.close()
    again = made(way, tmp_path / "kept", commit_every=4)
    assert equal(again.get_all_buffer_data(), twin.get_all_buffer_data())
    again.close()


def test_a_slice_in_an_episodic_buffer_equals_its_single_steps(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    one_by_one, at_once = (episodic_buffer(tmp_path / name, num_envs=2) for name in ("one", "many"))
    stream = Stream(2, "vector", True, random)
    for samples in cut_up([stream.step() for _ in range(60)], random, SIZE):
        for sample in samples:
            one_by_one.insert_transition(sample)
        at_once.insert_data_slice(together(samples))
        assert equal(one_by_one.get_all_buffer_data(), at_once.get_all_buffer_data())
    for storage in (one_by_one, at_once):
        storage.close()


@pytest.mark.parametrize("storage_class", [VanillaOnPolicyBuffer, GAEBuffer])
def test_a_rollout_accepts_one_slice_and_refuses_steps_beyond_its_size(storage_class: type[Storage]) -> None:
    one_by_one, at_once, twin = (
        storage_class.create_factory(size=SIZE)("cpu", SummingActor(), ALGORITHM, None) for _ in range(3)
    )
    stream = Stream(3, "vector", True, np.random.default_rng(0))
    samples = [with_values(stream.step()) for _ in range(SIZE + 2)]
    for sample in samples[:SIZE]:
        one_by_one.insert_transition(sample)
    at_once.insert_data_slice(together(samples[:SIZE]))
    with pytest.raises(RuntimeError, match="the rollout of 12 steps is full"):
        twin.insert_data_slice(together(samples))
    for storage in (one_by_one, at_once, twin):
        storage.seed(1)
        storage.before_gradients()
    first, *others = (next(iter(storage.generate_batches(1, None))) for storage in (one_by_one, at_once, twin))
    assert all(equal(first, other) for other in others)


def test_a_slice_without_a_required_field_is_refused_and_not_stored() -> None:
    storage = VTraceBuffer.create_factory(size=SIZE)("cpu", SummingActor(), ALGORITHM, None)
    stream = Stream(3, "vector", True, np.random.default_rng(0))
    samples = [with_values(stream.step()) for _ in range(4)]
    del samples[0][LOGP]
    with pytest.raises(SampleError, match=f"a sample needs {LOGP}"):
        storage.insert_data_slice({key: value for key, value in together(samples[1:]).items() if key != LOGP})
    assert not len(storage)


def with_values(sample: Sample) -> Sample:
    value = 10 * summed({OBS: sample[OBS]})
    return sample | {VAL: value, LOGP: value}


INVALID: dict[str, Callable[[Sample], None]] = {
    "a reward that is not finite": lambda data: data[REW].__setitem__((5, 1, 0), np.nan),
    "an observation that is not finite": lambda data: data[OBS2].__setitem__((5, 1, 2), np.inf),
}


@pytest.mark.parametrize("invalid", INVALID)
def test_the_steps_of_a_slice_before_a_refused_step_are_stored(invalid: str) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(4))
    data = together([stream.step() for _ in range(9)])
    one_by_one, at_once = (made("priority", None) for _ in range(2))
    whole = map_leaves(data, np.array)
    INVALID[invalid](data)
    with pytest.raises(SampleError, match=r"at step 5 .*nothing of this step was stored"):
        at_once.insert_data_slice(data)
    for step in range(5):
        one_by_one.insert_transition({key: value[step] for key, value in whole.items()})
    assert contents(at_once) == contents(one_by_one)
    at_once.insert_data_slice({key: value[5:] for key, value in whole.items()})
    assert len(at_once) == 18


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_a_slice_may_have_numeric_flags_and_no_truncation_field(dtype: type) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(4))
    samples = [stream.step() | {TRUNC2: np.zeros((2, 1), bool)} for _ in range(11)]
    data = together(samples)
    plain, other = (made("plain", None) for _ in range(2))
    plain.insert_data_slice(data)
    numbers = {key: value.astype(dtype) if key in FLAGS else value for key, value in data.items() if key != TRUNC2}
    other.insert_data_slice(numbers)
    assert contents(plain) == contents(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data | {ACT: data[ACT].astype(np.int32)}, "Action had dtype int64 in the first sample, now"),
        (lambda data: data | {ACT: np.repeat(data[ACT], 2, 2)}, r"Action had shape \(2, 1\) in the first sample, now"),
        (lambda data: {k: v for k, v in data.items() if k != DONE2}, "NextDone was in the first sample and is missing"),
        (lambda data: data | {"Extra": data[REW]}, "Extra was not in the first sample"),
        (lambda data: {k: v[:, :1] for k, v in data.items()}, r"had shape \(2, 3\) in the first sample, now"),
    ],
)
def test_an_incompatible_slice_raises_an_error_that_names_the_field(
    change: Callable[[Sample], Sample], message: str
) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(4))
    storage = made("plain", None)
    storage.insert_data_slice(together([stream.step() for _ in range(4)]))
    before = contents(storage)
    with pytest.raises(SampleError, match=message):
        storage.insert_data_slice(change(together([stream.step() for _ in range(4)])))
    assert contents(storage) == before


@pytest.mark.parametrize("field", ["a", "b"])
def test_a_slice_with_a_shorter_leaf_raises_an_error_that_names_the_leaf(field: str) -> None:
    stream, storage = Stream(2, "dict", False, np.random.default_rng(4)), made("plain", None)
    data = together([stream.step() for _ in range(4)])
    shorter = data | {OBS: data[OBS] | {field: data[OBS][field][:3]}}
    with pytest.raises(ValueError, match=re.escape(f"\"Observation['{field}']\": 3")):
        storage.insert_data_slice(shorter)
    with pytest.raises(ValueError, match=r"must be equally long, got .*'Reward': 0"):
        storage.insert_data_slice(data | {REW: np.array(1, np.float32)})
    assert not len(storage)


def test_an_empty_slice_stores_no_steps() -> None:
    stream, storage = Stream(2, "vector", False, np.random.default_rng(4)), made("plain", None)
    data = together([stream.step() for _ in range(3)])
    storage.insert_data_slice({key: value[:0] for key, value in data.items()})
    storage.insert_data_slice({})
    with pytest.raises(EmptyStorageError):
        storage.generate_batches(1, 1)


def test_a_slice_may_have_any_memory_layout() -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(4))
    data = together([stream.step() for _ in range(11)])
    plain, other = (made("plain", None) for _ in range(2))
    plain.insert_data_slice(data)
    other.insert_data_slice(map_leaves(data, lambda leaf: np.asfortranarray(np.repeat(leaf, 2, 0))[::2]))
    assert contents(plain) == contents(other)
