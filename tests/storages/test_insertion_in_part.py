"""Transitions of some environments at a time: the storage is the same for every order of arrival."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import storages
from storages import Episodes, SampleError, Sequences, Storage
from storages.transition import DONE, OBS2, REW, SKIPPED, VAL
from tests.support.model import (
    ALGORITHM,
    KINDS,
    STACKED_FRAMES,
    Model,
    Stream,
    assert_slice_is,
    contents,
    equal,
    map_leaves,
    through_a_file,
    unchanged,
)
from tests.support.profiles import examples
from tests.support.rollouts import SummingActor

PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01}
WAYS: dict[str, Any] = {
    "uniform": storages.ReplayBuffer.create_factory,
    "priority": lambda **given: storages.PERBuffer.create_factory(n_step=3, **PRIORITIES, **given),
    "hindsight": lambda **given: storages.HERBuffer.create_factory(
        her_function=unchanged,
        n_step=2,
        prefetch=2,
        **PRIORITIES,
        **given,
    ),
    "sequences": lambda **given: storages.PERBuffer.create_factory(sequences=Sequences(3), **PRIORITIES, **given),
    "episodes": lambda **given: storages.PERBuffer.create_factory(sequences=Episodes(), **PRIORITIES, **given),
}


def made(way: str, num_envs: int, kind: str = "vector", size: int | None = 12, **given: Any) -> Storage:
    envs = SimpleNamespace(num_envs=num_envs, stacked_frames=STACKED_FRAMES.get(kind, 0))
    storage: Storage = WAYS[way](size=size, **given)("cpu", None, ALGORITHM, envs)
    storage.seed(0)
    return storage


def select_envs(sample: Any, envs: list[int]) -> Any:
    return map_leaves(sample, lambda leaf: leaf[envs])


def deliveries(samples: list[Any], num_envs: int, random: np.random.Generator) -> Iterator[tuple[Any, list[int]]]:
    """Random parts of the samples: some environments at a time, each environment in the order of its transitions."""
    done = [0] * num_envs
    while min(done) < len(samples):
        left = [env for env in range(num_envs) if done[env] < min(len(samples), min(done) + 9)]
        envs = random.permutation(left)[: random.integers(1, len(left) + 1)].tolist()
        parts = [select_envs(samples[done[env]], [env]) for env in envs]
        yield joined(parts), envs
        for env in envs:
            done[env] += 1


def joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: joined([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)


@given(
    way=st.sampled_from(list(WAYS)),
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 4),
    size=st.none() | st.just(12),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(40), deadline=None)
def test_partial_insertions_in_any_order_equal_insertions_of_complete_steps(
    way: str, kind: str, num_envs: int, size: int | None, seed: int
) -> None:
    random = np.random.default_rng(seed)
    stream, model = Stream(num_envs, kind, True, random), Model(12 if size else 1000)
    samples = [map_leaves(stream.step(), np.array) for _ in range(30)]
    at_once, in_part = (made(way, num_envs, kind, size) for _ in range(2))
    for sample in samples:
        at_once.insert_transition(sample)
        model.insert(sample)
    for number, (part, envs) in enumerate(deliveries(samples, num_envs, random)):
        given = map_leaves(part, np.array)
        in_part.insert_transition(part, envs)
        # The caller may overwrite the inserted arrays afterwards.
        map_leaves(part, lambda leaf: leaf.fill(0))
        if number % 11 == 10:
            state = through_a_file(in_part.state_dict())
            in_part = made(way, num_envs, kind, size)
            in_part.load_state_dict(state)
        assert given.keys() == part.keys()
    assert contents(in_part) == contents(at_once)
    assert_slice_is(in_part.get_all_buffer_data(), model.live())
    in_part.seed(1)
    at_once.seed(1)
    batches = (dict(enumerate(one.generate_batches(3, 5))) for one in (in_part, at_once))
    assert equal(*batches)


@given(way=st.sampled_from(list(WAYS)), kind=st.sampled_from(KINDS), seed=st.integers(0, 1000))
@settings(max_examples=examples(20), deadline=None)
def test_slices_with_a_skipped_field_equal_insertions_of_complete_steps(way: str, kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    stream = Stream(3, kind, True, random)
    samples = [map_leaves(stream.step(), np.array) for _ in range(20)]
    at_once, in_part, in_slices = (made(way, 3, kind) for _ in range(3))
    for sample in samples:
        at_once.insert_transition(sample)
    steps = []
    for part, envs in deliveries(samples, 3, random):
        # The values in the rows of the other environments are ignored.
        rows = [envs.index(env) if env in envs else 0 for env in range(3)]
        there = np.isin(np.arange(3), envs)
        steps.append(select_envs(part, rows) | {SKIPPED: ~there[:, None]})
        in_part.insert_masked(select_envs(part, rows), there)
    for first in range(0, len(steps), 7):
        in_slices.insert_data_slice(stacked(steps[first : first + 7]))
    assert contents(in_part) == contents(in_slices) == contents(at_once)


def stacked(steps: list[Any]) -> Any:
    if isinstance(steps[0], dict):
        return {key: stacked([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)


def test_a_step_is_stored_once_every_environment_has_delivered_its_transition(tmp_path: Path) -> None:
    storage, stream = made("priority", 3, directory=tmp_path), Stream(3, "vector", False, np.random.default_rng(0))
    first, second, third = (map_leaves(stream.step(), np.array) for _ in range(3))
    storage.insert_transition(select_envs(first, [2, 0]), [2, 0])
    storage.insert_transition(select_envs(second, [0]), [0])
    assert len(storage) == 0
    assert storage.nbytes > storage.ring.columns.nbytes
    state = through_a_file(storage.state_dict())
    storage.insert_transition(select_envs(first, [1]), [1])
    assert len(storage) == 3
    whole = joined([select_envs(third, [0]), select_envs(second, [1]), select_envs(second, [2])])
    slice_of_one = map_leaves(whole, lambda leaf: leaf[None])
    for refused in (lambda: storage.insert_transition(whole), lambda: storage.insert_data_slice(slice_of_one)):
        with pytest.raises(
            RuntimeError, match="PERBuffer: 1 transitions of incomplete steps wait for environment 1; give envs="
        ):
            refused()
    storage.insert_transition(whole, [0, 1, 2])
    assert len(storage) == 6
    storage.insert_transition(select_envs(third, [1, 2]), [1, 2])
    assert_slice_is(storage.get_all_buffer_data(), [first, second, third])
    storage.insert_data_slice(map_leaves(map_leaves(stream.step(), np.array), lambda leaf: leaf[None]))
    assert len(storage) == 12
    storage.load_state_dict(state)
    assert len(storage) == 0
    storage.insert_transition(select_envs(first, [1]), [1])
    storage.insert_transition(select_envs(second, [2, 1]), [2, 1])
    assert_slice_is(storage.get_all_buffer_data(), [first, second])
    storage.insert_transition(select_envs(third, [0]), [0])
    storage.reset()
    storage.insert_transition(select_envs(third, [1, 2]), [1, 2])
    assert len(storage) == 0
    storage.close()


def test_rollouts_accept_transitions_of_some_environments() -> None:
    factory = storages.GAEBuffer.create_factory(size=4)
    rollout = factory("cpu", SummingActor(), SimpleNamespace(gamma=0.9), SimpleNamespace(num_envs=2))
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    samples = [(sample := stream.step()) | {VAL: sample[REW]} for _ in range(5)]
    for sample in samples[:4]:
        rollout.insert_transition(select_envs(sample, [1]), [1])
    for sample in samples[:4]:
        rollout.insert_transition(select_envs(sample, [0]), [0])
    rollout.insert_transition(select_envs(samples[4], [0]), [0])
    with pytest.raises(RuntimeError, match="the rollout of 4 steps is full"):
        rollout.insert_transition(select_envs(samples[4], [1]), [1])
    rollout.before_gradients()
    assert_slice_is(
        {key: value for key, value in rollout.get_all_buffer_data().items() if key in samples[0]}, samples[:4]
    )


def test_invalid_partial_insertions_are_refused_by_their_cause_and_store_no_data() -> None:
    storage, stream = made("uniform", 3, size=2), Stream(3, "vector", False, np.random.default_rng(0))
    sample = stream.step()
    with pytest.raises(IndexError, match=r"envs must lie in \[0, 3\), got 3"):
        storage.insert_transition(select_envs(sample, [0, 1]), [0, 3])
    with pytest.raises(IndexError, match=r"envs must name each environment at most once, got \[1, 1\]"):
        storage.insert_transition(select_envs(sample, [0, 1]), [1, 1])
    bad = select_envs(sample, [0, 1])
    with pytest.raises(SampleError, match="Reward of environment 2 is nan"):
        storage.insert_transition(bad | {REW: np.array([[0], [np.nan]], np.float32)}, [0, 2])
    with pytest.raises(SampleError, match="the first axis of every field must be the environments"):
        storage.insert_transition(select_envs(sample, [0]) | {DONE: sample[DONE]}, [0])
    with pytest.raises(SampleError, match="must have the shape and dtype of Observation"):
        storage.insert_transition(select_envs(sample, [0]) | {OBS2: np.zeros((1, 7))}, [0])
    assert storage.nbytes == storage.ring.columns.nbytes
    for _ in range(2):
        storage.insert_transition(select_envs(sample, [0, 2]), [0, 2])
    with pytest.raises(RuntimeError, match="environment 2 is 2 transitions ahead of environment 1, and no more"):
        storage.insert_transition(select_envs(sample, [2]), [2])
    storage.insert_transition(select_envs(sample, [1]), [1])
    assert len(storage) == 3
    alone = storages.ReplayBuffer.create_factory(size=3)("cpu", None, ALGORITHM, None)
    with pytest.raises(ValueError, match=r"ReplayBuffer: envs=\[0\] needs a known number of environments"):
        alone.insert_transition(select_envs(sample, [0]), [0])


def test_masks_have_a_value_for_each_environment() -> None:
    storage, stream = made("uniform", 2, size=5), Stream(2, "vector", False, np.random.default_rng(0))
    for mask in ([True], [True] * 3, [[True, False]], True):
        with pytest.raises(ValueError, match=r"a mask has a value for each environment, \(2,\), got the shape"):
            storage.insert_masked(stream.step(), np.array(mask))
    column, flat = (made("uniform", 2, size=2) for _ in range(2))
    for number in range(4):
        sample = stream.step()
        column.insert_masked(sample, np.array([[True], [number == 2]]))
        flat.insert_masked(sample, np.array([True, number == 2]))
    assert len(flat) == 2
    assert contents(column) == contents(flat)
