"""Errors that are given with a slice set the priorities of its transitions, sequences and episodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, GAEBuffer, PERBuffer, PersistentEpisodicBuffer, ReplayBuffer, SampleError, Sequences
from storages.transition import DONE2, ERRORS, REW, TRUNC2
from tests.support.model import ALGORITHM, contents
from tests.support.rollouts import SummingActor
from tests.support.shards import maker, slice_of

ETA = 0.6


def prioritised(size: int = 40, **given: Any) -> Any:
    return maker(PERBuffer.create_factory(**({"size": size, "alpha": 0.7, "epsilon": 0.01} | given)))()


def with_errors(random: np.random.Generator, steps: int, **given: Any) -> dict[str, Any]:
    data = slice_of(random, steps, **given)
    return data | {ERRORS: random.normal(size=data[REW].shape)}


def errors_of(storage: Any) -> np.ndarray[Any, Any]:
    """The errors of the rows that may be drawn, in the order of their numbers."""
    priorities = storage.priorities
    return np.array([priorities.errors_of(number, number + 1)[0] for number in priorities.drawn])


def test_the_errors_of_a_slice_set_the_priorities_of_its_transitions() -> None:
    storage, random = prioritised(), np.random.default_rng(0)
    data = with_errors(random, 20)
    storage.insert_data_slice(data)
    magnitudes = np.abs(data[ERRORS]).astype(np.float32).ravel()
    np.testing.assert_array_equal(errors_of(storage), magnitudes)
    np.testing.assert_allclose(storage.priorities.values, (magnitudes.astype(np.float64) + 0.01) ** 0.7)
    storage.insert_data_slice(slice_of(random, 3))
    assert (errors_of(storage)[40:] == storage.priorities.largest_error).all(), "no errors came with these"


def test_the_errors_of_a_slice_may_be_tensors_or_arrays_of_any_precision() -> None:
    storage, data = prioritised(), slice_of(np.random.default_rng(0), 4)
    for errors in (torch.ones(4, 2, 1), torch.full((4, 2, 1), 2.0).half(), np.full((4, 2, 1), 3)):
        storage.insert_data_slice(data | {ERRORS: errors})
    np.testing.assert_array_equal(errors_of(storage), np.repeat([1, 2, 3], 8))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_error_of_a_sequence_is_computed_from_the_given_errors_of_its_steps(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 6))
    overlap = data.draw(st.none() | st.integers(0, length - 1))
    across, num_envs = data.draw(st.booleans()), data.draw(st.integers(1, 3))
    sequences = Sequences(length, overlap=overlap, across_episodes=across, eta=ETA)
    storage, random = prioritised(sequences=sequences), np.random.default_rng(data.draw(st.integers(0, 99)))
    first = data.draw(st.integers(0, 5))
    if first:
        storage.insert_data_slice(slice_of(random, first, num_envs))
    steps = data.draw(st.integers(1, 25))
    given = with_errors(random, steps, num_envs=num_envs)
    storage.insert_data_slice(given)
    magnitudes, ends = np.abs(given[ERRORS][..., 0]), given[DONE2][..., 0]
    for number in storage.priorities.drawn:
        step, env = divmod(int(number), num_envs)
        step -= first
        if step < 0:
            continue
        end = step + 1
        while end < min(steps, step + length) and (across or not ends[end - 1, env]):
            end += 1
        own = magnitudes[step:end, env]
        expected = ETA * own.max() + (1 - ETA) * own.mean()
        np.testing.assert_allclose(storage.priorities.errors_of(number, number + 1), expected, rtol=1e-6)


@pytest.mark.parametrize("longest", [None, 3])
def test_the_error_of_an_episode_is_computed_from_the_errors_of_its_steps(longest: int | None) -> None:
    episodes = Episodes(longest=longest, eta=ETA)
    storage, random = prioritised(sequences=episodes), np.random.default_rng(0)
    data = with_errors(random, 30, num_envs=1)
    storage.insert_data_slice(data)
    magnitudes, ends = np.abs(data[ERRORS][:, 0, 0]), data[DONE2][:, 0, 0]
    begins = [0, *(np.flatnonzero(ends)[:-1] + 1)]
    expected = {}
    for begin, end in zip(begins, np.flatnonzero(ends) + 1, strict=True):
        for piece in range(begin, end, longest or 99):
            own = magnitudes[piece : min(end, piece + (longest or 99))]
            expected[piece] = ETA * own.max() + (1 - ETA) * own.mean()
    drawn = [number for number in storage.priorities.drawn.tolist() if number in expected]
    assert drawn == sorted(expected)
    for number in drawn:
        np.testing.assert_allclose(storage.priorities.errors_of(number, number + 1), expected[number], rtol=1e-6)


def test_a_slice_longer_than_the_storage_keeps_its_newest_errors() -> None:
    storage, data = prioritised(size=10), with_errors(np.random.default_rng(0), 33)
    storage.insert_data_slice(data)
    np.testing.assert_array_equal(errors_of(storage), np.abs(data[ERRORS][-10:]).astype(np.float32).ravel())


def test_the_steps_before_a_refused_step_keep_their_errors() -> None:
    storage, data = prioritised(), with_errors(np.random.default_rng(0), 8)
    data[REW][5, 1] = np.nan
    with pytest.raises(SampleError, match="at step 5"):
        storage.insert_data_slice(data)
    np.testing.assert_array_equal(errors_of(storage), np.abs(data[ERRORS][:5]).astype(np.float32).ravel())


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (np.ones((4, 2)), r"real numbers of shape \(4, 2, 1\), one for each transition, got float64 of shape \(4, 2\)"),
        (np.ones((3, 2, 1)), r"of shape \(4, 2, 1\)"),
        (np.ones((4, 2, 1), complex), "real numbers"),
        (np.full((4, 2, 1), np.nan), "must be finite as float32"),
        (np.full((4, 2, 1), 1e300), "must be finite as float32"),
    ],
)
def test_errors_must_be_one_finite_number_for_each_transition(errors: Any, message: str) -> None:
    storage = prioritised()
    with pytest.raises(ValueError, match=message):
        storage.insert_data_slice(slice_of(np.random.default_rng(0), 4) | {ERRORS: errors})
    assert not len(storage)


def test_errors_of_a_slice_are_no_stored_field_and_ignored_by_storages_of_episodes(tmp_path: Path) -> None:
    data = with_errors(np.random.default_rng(0), 6)
    plain = maker(ReplayBuffer.create_factory(size=9))()
    rollout = GAEBuffer.create_factory(size=6)("cpu", SummingActor(), ALGORITHM, None)
    uniform = prioritised(alpha=0.0)
    on_disk = maker(PersistentEpisodicBuffer.create_factory(size=9, alpha=0.5, directory=tmp_path))()
    for storage in (plain, uniform, on_disk):
        storage.insert_data_slice(data)
        assert ERRORS not in storage.get_all_buffer_data()
    rollout.insert_data_slice({**data, "Value": data[REW], "LogProbability": data[REW]})
    assert len(rollout) == 12
    assert uniform.priorities is None
    assert contents(plain) == contents(uniform)
    on_disk.end_episode()
    next(on_disk.generate_batches(1, 4))
    assert set(errors_of(on_disk)) == {on_disk.default_error}
    on_disk.close()


def test_the_errors_of_slices_are_restored_from_a_directory(tmp_path: Path) -> None:
    factory = PERBuffer.create_factory(size=40, alpha=0.7, epsilon=0.01, directory=tmp_path, commit_every=7)
    storage, random = maker(factory)(), np.random.default_rng(0)
    for _ in range(3):
        data = with_errors(random, 10)
        data[TRUNC2][-1] = True
        storage.insert_data_slice(data)
    expected = errors_of(storage)
    storage.close()
    again = maker(factory)()
    np.testing.assert_array_equal(errors_of(again), expected)
    again.close()
