"""Slices in which environments skip steps: their TD errors, and storages of whole episodes."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, PERBuffer, PersistentEpisodicBuffer, SampleError, Sequences
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, SKIPPED, TRUNC2
from tests.support.episodic import EpisodesModel
from tests.support.model import ALGORITHM, contents, map_leaves, through_a_file
from tests.support.profiles import examples

ENVS = 3
SKIPS = 12
"""Of each environment: more transitions wait than a new buffer of incomplete steps has room for."""


def complete_steps(random: np.random.Generator, steps: int) -> dict[str, Any]:
    """Fields (steps, E, ...) of environments that make a transition in every step."""
    seen = np.broadcast_to(np.arange(steps + 1, dtype=np.float32)[:, None, None], (steps + 1, ENVS, 1))
    ended = random.random((steps, ENVS, 1)) < 0.2
    return {
        OBS: seen[:-1],
        DONE: np.concatenate([np.ones((1, ENVS, 1), bool), ended[:-1]]),
        ACT: random.integers(0, 4, (steps, ENVS, 1)),
        REW: random.normal(size=(steps, ENVS, 1)).astype(np.float32),
        OBS2: seen[1:],
        DONE2: ended & (random.random(ended.shape) < 0.5),
        TRUNC2: ended,
        ERRORS: random.normal(size=(steps, ENVS, 1)),
    }


def with_skipped_steps(data: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """The same transitions of each environment, between which it skips steps."""
    made = [random.permutation(np.repeat([True, False], [len(data[REW]), SKIPS])) for _ in range(ENVS)]
    made[0].sort()  # the first environment begins last
    spread = {}
    for name, values in data.items():
        spread[name] = np.zeros((len(values) + SKIPS, *values.shape[1:]), values.dtype)
        for env, where in enumerate(made):
            spread[name][where, env] = values[:, env]
    return spread | {SKIPPED: ~np.stack(made, axis=1)[..., None]}


def pieces(data: dict[str, Any], length: int) -> Iterator[dict[str, Any]]:
    for first in range(0, len(data[REW]), length):
        yield {name: values[first : first + length] for name, values in data.items()}


def prioritised(**given: Any) -> Any:
    factory = PERBuffer.create_factory(size=40, alpha=0.7, epsilon=0.01, **given)
    return factory("cpu", None, ALGORITHM, SimpleNamespace(num_envs=ENVS))


def episodes_in(directory: Path) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(40, directory)
    return factory("cpu", None, ALGORITHM, SimpleNamespace(num_envs=ENVS))


def restarted(storage: Any, given: dict[str, Any]) -> Any:
    """A new storage that has loaded the state of one that is closed."""
    state = through_a_file(storage.state_dict())
    storage.close()
    storage = prioritised(**given)
    storage.load_state_dict(state)
    return storage


def errors_of(storage: Any) -> list[float]:
    priorities = storage.priorities
    return [float(priorities.errors_of(number, number + 1)[0]) for number in priorities.drawn]


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("on_disk", [False, True])
@given(seed=st.integers(0, 1000), length=st.integers(1, 25))
@settings(max_examples=examples(20), deadline=None)
def test_transitions_have_the_errors_given_with_them_after_skips_and_restarts(
    on_disk: bool, seed: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    given = {"directory": tmp_path_factory.mktemp("replay")} if on_disk else {}
    random = np.random.default_rng(seed)
    data = complete_steps(random, 20)
    storage, expected = prioritised(**given), prioritised()
    expected.insert_data_slice(data)
    for piece in pieces(with_skipped_steps(data, random), length):
        storage.insert_data_slice(piece)
        storage = restarted(storage, given)
    assert contents(storage) == contents(expected)
    assert errors_of(storage) == errors_of(expected)
    storage.close()


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("sequences", [Sequences(4, burn_in=1, overlap=2), Episodes()])
def test_sequences_and_episodes_have_the_errors_of_all_their_steps_in_the_slice(
    sequences: Any, on_disk: bool, tmp_path: Path
) -> None:
    given = {"sequences": sequences} | ({"directory": tmp_path} if on_disk else {})
    random = np.random.default_rng(1)
    data = complete_steps(random, 20)
    storage, expected = prioritised(**given), prioritised(sequences=sequences)
    expected.insert_data_slice(data)
    storage.insert_data_slice(with_skipped_steps(data, random))
    storage = restarted(storage, given)
    assert contents(storage) == contents(expected)
    assert errors_of(storage) == errors_of(expected)
    storage.close()


def test_transitions_without_errors_keep_the_initial_error_beside_others_with_errors() -> None:
    random = np.random.default_rng(0)
    data = complete_steps(random, 4)
    storage = prioritised()
    first, second = ({name: values[steps] for name, values in data.items()} for steps in (slice(2), slice(2, 4)))
    skipped = np.zeros((2, ENVS, 1), bool)
    skipped[:, 0] = True
    without = {name: values for name, values in first.items() if name != ERRORS}
    storage.insert_data_slice(without | {SKIPPED: skipped})
    storage.insert_data_slice(first | {SKIPPED: ~skipped})
    storage.insert_data_slice(second | {SKIPPED: np.zeros((2, ENVS, 1), bool)})
    errors = np.abs(data[ERRORS][..., 0])
    errors[:2, 1:] = errors[:2, 0].max()  # the largest error when they were stored
    np.testing.assert_allclose(errors_of(storage), errors.ravel(), rtol=1e-6)


def test_steps_before_one_that_is_refused_keep_their_errors() -> None:
    random = np.random.default_rng(0)
    data = complete_steps(random, 6)
    data[REW][4, 1] = np.nan
    storage = prioritised()
    with pytest.raises(SampleError, match="Reward of environment 1 is nan"):
        storage.insert_data_slice(data | {SKIPPED: np.zeros((6, ENVS, 1), bool)})
    np.testing.assert_allclose(errors_of(storage), np.abs(data[ERRORS][:4]).ravel(), rtol=1e-6)


def test_a_transition_that_waited_keeps_its_error_when_its_step_is_completed() -> None:
    data = complete_steps(np.random.default_rng(0), 1)
    errors, storage = data.pop(ERRORS), prioritised()
    skipped = np.array([[[False], [False], [True]]])
    storage.insert_data_slice(data | {ERRORS: errors, SKIPPED: skipped})
    last = {name: values[0, [2]] for name, values in data.items()}
    with pytest.raises(SampleError, match="Errors was not in the first sample"):
        storage.insert_transition(last | {ERRORS: errors[0, [2]]}, [2])
    storage.insert_transition(last, [2])
    np.testing.assert_allclose(errors_of(storage)[:2], np.abs(errors[0, :2, 0]), rtol=1e-6)


@given(seed=st.integers(0, 1000), length=st.integers(1, 25))
@settings(max_examples=examples(10), deadline=None)
def test_a_storage_of_episodes_holds_the_same_episodes_with_skipped_steps(
    seed: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = np.random.default_rng(seed)
    data = complete_steps(random, 20)
    storage, model = episodes_in(tmp_path_factory.mktemp("episodes")), EpisodesModel(40)
    for piece in pieces({name: values for name, values in data.items() if name != ERRORS}, 1):
        model.insert({name: values[0] for name, values in piece.items()})
    for piece in pieces(with_skipped_steps(data, random), length):
        storage.insert_data_slice(piece)
    model.assert_holds(storage)
    storage.close()


def test_a_storage_of_episodes_restores_incomplete_steps_from_its_state(tmp_path: Path) -> None:
    data = complete_steps(np.random.default_rng(0), 3)
    flags = {DONE2: np.zeros((3, ENVS, 1), bool), TRUNC2: np.zeros((3, ENVS, 1), bool)}
    del data[ERRORS]
    first, second, third = ({name: values[step] for name, values in (data | flags).items()} for step in range(3))
    storage = episodes_in(tmp_path)
    storage.insert_transition(map_leaves(first, lambda leaf: leaf[[2, 0]]), [2, 0])
    with pytest.raises(RuntimeError, match="PersistentEpisodicBuffer: 2 transitions of incomplete steps wait for "):
        storage.insert_transition(second)
    state = through_a_file(storage.state_dict())
    storage.close()
    storage = episodes_in(tmp_path)
    storage.load_state_dict(state)
    storage.insert_transition(map_leaves(first, lambda leaf: leaf[[1]]), [1])
    storage.insert_transition(map_leaves(second, lambda leaf: leaf[[1]]), [1])
    storage.end_episode()
    assert [len(episode) for episode in storage.episodes()] == [1, 1], "the episode of environment 1 goes on"
    storage.insert_transition(map_leaves(second, lambda leaf: leaf[[0, 2]]), [0, 2])
    assert [len(episode) for episode in storage.episodes()] == [1, 1, 2]
    storage.insert_transition(map_leaves(third, lambda leaf: leaf[[1]]), [1])
    storage.reset()
    storage.insert_transition(third)
    storage.end_episode()
    assert [len(episode) for episode in storage.episodes()] == [1, 1, 1]
    storage.close()


def test_a_slice_with_skipped_steps_fixes_the_number_of_environments() -> None:
    random = np.random.default_rng(0)
    data = with_skipped_steps(complete_steps(random, 20), random)
    known = prioritised()
    unknown = PERBuffer.create_factory(size=40, alpha=0.7, epsilon=0.01)("cpu", None, ALGORITHM, None)
    for storage in (known, unknown):
        storage.insert_data_slice(data)
        storage.seed(0)
    assert contents(known) == contents(unknown)


def test_a_sample_with_skipped_rows_is_refused_by_replay_storages() -> None:
    storage, data = prioritised(), complete_steps(np.random.default_rng(0), 2)
    step = {name: values[0] for name, values in data.items() if name != ERRORS} | {SKIPPED: np.ones((ENVS, 1), bool)}
    with pytest.raises(SampleError, match="keeps no skipped rows, and a sample has Skipped; insert_masked"):
        storage.insert_transition(step)
    assert not len(storage)
