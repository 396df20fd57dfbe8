"""A storage holds the episodes that it was filled with, and returns the episodes that it holds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import DatasetError, Episode, SampleError
from storages.datasets import Filled, episodes_of, fill
from storages.transition import ACT, DONE, DONE2, LOGP, OBS, OBS2, REW, RHS, RHS2, TRUNC2
from tests.support.directories import WAYS, made
from tests.support.episodes import assert_same, assert_same_leaves, episode, some
from tests.support.model import KINDS, Model, Stream, environments, map_leaves, replay_buffer
from tests.support.profiles import examples


def transitions_of(episodes: list[Episode]) -> set[tuple[Any, ...]]:
    """Every transition with its next observation and its flags of an end."""
    return {
        (
            one.observations[step].tobytes(),
            one.fields[ACT][step].tobytes(),
            float(np.float32(one.fields[REW][step, 0])),
            one.observations[step + 1].tobytes(),
            one.terminated and step == len(one) - 1,
            one.truncated and step == len(one) - 1,
        )
        for one in episodes
        for step in range(len(one))
    }


def stored_in(storage: Any) -> list[tuple[Any, ...]]:
    data = map_leaves(storage.get_all_buffer_data(), lambda leaf: leaf.numpy())
    return [
        (
            data[OBS][step, env].tobytes(),
            data[ACT][step, env].tobytes(),
            float(data[REW][step, env, 0]),
            data[OBS2][step, env].tobytes(),
            bool(data[DONE2][step, env, 0]),
            bool(data[TRUNC2][step, env, 0]),
        )
        for step in range(len(storage) // storage.num_envs)
        for env in range(storage.num_envs)
    ]


@settings(deadline=None, max_examples=examples(60))
@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=9),
    num_envs=st.integers(1, 4),
)
def test_every_transition_is_inserted_once_and_less_than_one_step_is_left_out(
    lengths: list[tuple[int, bool, bool]], num_envs: int
) -> None:
    episodes = [
        episode(length, seed=number, terminated=terminated, truncated=truncated)
        for number, (length, terminated, truncated) in enumerate(lengths)
    ]
    storage = replay_buffer(100)
    filled = fill(storage, iter(episodes), num_envs=num_envs)
    stored, expected = stored_in(storage) if len(storage) else [], transitions_of(episodes)
    assert len(set(stored)) == len(stored) == filled.transitions
    assert set(stored) <= expected
    assert filled.left_out == len(expected) - len(stored) < num_envs
    # An episode is stored in one piece, unless it was divided.
    pieces = list(episodes_of(storage))
    assert filled.episodes <= len(pieces) <= filled.episodes + filled.divided
    assert transitions_of(pieces) == set(stored)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_each_environment_receives_its_episodes_one_after_another(num_envs: int) -> None:
    episodes = [episode(6, seed=seed) for seed in range(2 * num_envs)]
    storage = replay_buffer(100)
    assert fill(storage, episodes, num_envs=num_envs) == Filled(len(episodes), 12 * num_envs, divided=0, left_out=0)
    done = storage.get_all_buffer_data()[DONE][..., 0]
    assert done.sum(1).tolist() == [num_envs if step % 6 == 0 else 0 for step in range(12)]
    rewards = [replace(one, fields=one.fields | {REW: one.fields[REW].astype(np.float32)}) for one in episodes]
    assert_same(episodes_of(storage), rewards)


def test_episodes_are_divided_if_there_are_fewer_episodes_than_environments() -> None:
    storage = replay_buffer(100)
    filled = fill(storage, [episode(2, seed=1), episode(11, seed=2)], num_envs=3)
    # The third environment would have no episode: 13 transitions are divided by 3.
    assert filled == Filled(episodes=2, transitions=12, divided=2, left_out=1)
    assert storage.get_all_buffer_data()[DONE][0].flatten().tolist() == [1, 1, 1]


def test_later_episodes_do_not_continue_unfinished_ones() -> None:
    storage = replay_buffer(100)
    one, two = episode(3, seed=1, terminated=False), episode(2, seed=2, terminated=False)
    fill(storage, [one])
    fill(storage, [two])
    assert [len(piece) for piece in episodes_of(storage)] == [3, 2]
    data = storage.get_all_buffer_data()
    assert data[OBS2][2, 0].numpy().tobytes() == one.observations[3].tobytes()


def test_a_storage_keeps_its_dtypes_and_rewards_are_float32() -> None:
    doubles = [replace(one, observations=np.asarray(one.observations, np.float64)) for one in some(continuous=True)]
    storage = replay_buffer(100)
    fill(storage, some(continuous=True))
    fill(storage, doubles)
    data = storage.get_all_buffer_data()
    assert data[OBS].numpy().dtype == data[REW].numpy().dtype == np.float32
    assert (data[OBS][:13] == data[OBS][13:]).all()


def test_an_empty_storage_takes_the_dtypes_of_the_environments() -> None:
    box = SimpleNamespace(shape=(3,), dtype=np.float32)
    envs = SimpleNamespace(num_envs=2, observation_space=box, action_space=SimpleNamespace(shape=(), dtype=np.int64))
    doubles = [replace(one, observations=np.asarray(one.observations, np.float64)) for one in some()]
    storage = replay_buffer(100)
    fill(storage, doubles, envs=envs)
    assert storage.num_envs == 2
    assert storage.get_all_buffer_data()[OBS].numpy().dtype == np.float32
    envs.observation_space.shape = (4,)
    with pytest.raises(DatasetError, match=r"Observation has shape \(3,\) in the data set, and \(4,\)"):
        fill(replay_buffer(100), doubles, envs=envs)


def test_values_that_a_storage_cannot_hold_are_refused() -> None:
    storage = replay_buffer(100)
    fill(storage, some())
    halves = [replace(one, fields=one.fields | {ACT: one.fields[ACT] + 0.5}) for one in some()]
    with pytest.raises(DatasetError, match="Action is float64 in the data set, and int64 in the storage"):
        fill(storage, halves)
    whole = [replace(one, fields=one.fields | {ACT: one.fields[ACT].astype(np.float64)}) for one in some()]
    fill(storage, whole)
    assert len(storage) == 26


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8])
def test_whole_numbers_are_stored_in_fewer_bytes_only_if_they_fit(dtype: Any) -> None:
    fields = {ACT: np.zeros((4, 1), np.int64), REW: np.zeros((4, 1), np.float32)}
    storage, largest = replay_buffer(20), int(np.iinfo(dtype).max)
    fill(storage, [Episode(np.zeros((5, 1), dtype), fields, True, False)])
    with pytest.raises(DatasetError, match="Observation is int64 in the data set"):
        fill(storage, [Episode(np.full((5, 1), largest + 1, np.int64), fields, True, False)])
    fill(storage, [Episode(np.full((5, 1), largest, np.int64), fields, True, False)])
    assert storage.get_all_buffer_data()[OBS].flatten().tolist() == [0] * 4 + [largest] * 4


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            lambda one: replace(one, observations=one.observations[:-1]),
            "an episode of 5 steps has 5 rows of Observation",
        ),
        (lambda one: replace(one, fields=one.fields | {LOGP: np.zeros((2, 1))}), "has 2 rows of LogProbability"),
    ],
)
def test_an_episode_that_lacks_rows_is_refused(broken: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        fill(replay_buffer(100), [broken(episode(5))])


def test_episodes_with_different_fields_or_shapes_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"episodes have different fields: .*LogProbability"):
        fill(replay_buffer(100), [episode(5), episode(5, further=True)], num_envs=2)
    with pytest.raises(DatasetError, match="Observation has different shapes in different episodes"):
        fill(replay_buffer(100), [episode(5), episode(5, "double")], num_envs=2)
    with pytest.raises(SampleError, match="LogProbability was in the first sample and is missing now"):
        fill(replay_buffer(100), [episode(5, further=True), episode(5)])


@pytest.mark.parametrize("way", WAYS)
def test_every_replay_storage_can_be_filled_and_sampled(way: str) -> None:
    storage = made(way, None, size=40)
    fields = {RHS: np.zeros((9, 4), np.float32), RHS2: np.zeros((9, 4), np.float32)} if way == "sequences" else {}
    fill(storage, [replace(one, fields=one.fields | fields) for one in (episode(9, seed=seed) for seed in range(5))])
    assert len(storage) == 40
    assert len(list(storage.generate_batches(2, 4))) == 2
    assert [len(one) for one in episodes_of(storage)] == [4, 9, 9, 9, 9]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("steps", [7, 40])
def test_the_episodes_of_a_storage_equal_the_inserted_steps(kind: str, num_envs: int, steps: int) -> None:
    storage, model = replay_buffer(15, envs=environments(kind, num_envs)), Model(15)
    stream = Stream(num_envs, kind, True, np.random.default_rng(steps))
    for _ in range(steps):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    found: list[list[Episode]] = [[] for _ in range(num_envs)]
    for one in episodes_of(storage):
        found[one.facts["environment"]].append(one)
    for env in range(num_envs):
        expected = list(_episodes_of(model.live(), env))
        assert_same(found[env], expected)
        assert [one.facts["begins"] for one in found[env]] == [one.facts["begins"] for one in expected]
    whole = [one for one in episodes_of(storage) if one.facts["begins"] and (one.terminated or one.truncated)]
    assert_same(episodes_of(storage, whole=True), whole)


def _episodes_of(live: list[dict[str, Any]], env: int) -> Iterator[Episode]:
    """Episodes according to their definition, found one transition at a time."""
    steps = [map_leaves(sample, lambda leaf: leaf[env]) for sample in live]
    while steps:
        length = next(
            (
                number
                for number, (one, two) in enumerate(pairwise(steps), start=1)
                if one[DONE2]
                or one[TRUNC2]
                or two[DONE]
                or not _same(one[OBS2], two[OBS])
                or not _same(one[RHS2], two[RHS])
            ),
            len(steps),
        )
        part, steps = steps[:length], steps[length:]
        seen = [one[OBS] for one in part] + [part[-1][OBS2]]
        yield Episode(
            {name: np.stack([one[name] for one in seen]) for name in seen[0]}
            if isinstance(seen[0], dict)
            else np.stack(seen),
            {key: np.stack([one[key] for one in part]) for key in (RHS, ACT, REW, RHS2)},
            bool(part[-1][DONE2]),
            bool(part[-1][TRUNC2]),
            {"begins": bool(part[0][DONE])},
        )


def _same(one: Any, other: Any) -> bool:
    try:
        assert_same_leaves(one, other)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_episodes_of_a_storage_fill_another_storage_equally(kind: str) -> None:
    storage = replay_buffer(30, envs=environments(kind, 1))
    stream = Stream(1, kind, True, np.random.default_rng(0))
    for _ in range(30):
        storage.insert_transition(stream.step())
    other = replay_buffer(30, envs=environments(kind, 1))
    fill(other, episodes_of(storage))
    assert_same(episodes_of(other), episodes_of(storage))


def test_an_empty_storage_has_no_episodes_and_stays_empty_without_data() -> None:
    storage = replay_buffer(10)
    assert list(episodes_of(storage)) == []
    assert fill(storage, []) == Filled(0, 0, 0, 0)
    assert len(storage) == 0


def test_an_episode_without_its_first_steps_is_not_a_whole_one_in_another_storage() -> None:
    source, stream = replay_buffer(size=7), Stream(1, "vector", False, np.random.default_rng(3))
    while True:
        source.insert_transition(stream.step())
        episodes = list(episodes_of(source))
        if len(episodes) > 1 and not episodes[0].facts["begins"] and episodes[1].facts["begins"]:
            break
    other = replay_buffer(size=20)
    fill(other, episodes)
    assert [one.facts["begins"] for one in episodes_of(other)] == [one.facts["begins"] for one in episodes]
