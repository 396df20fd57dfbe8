"""Rollouts: returns and advantages use the right values, and every transition is used once per epoch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from storages import EmptyStorageError, GAEBuffer, SampleError, VanillaOnPolicyBuffer
from storages.transition import ADV, DONE, LOGP, OBS, RET, REW, RHS, RHS2, VAL
from tests.support.model import contents, equal, map_leaves, through_a_file
from tests.support.rollouts import GAMMA, buffer, by_observation, step

Make = Callable[..., Any]


@pytest.fixture(params=["VanillaOnPolicyBuffer", "GAEBuffer"])
def make(request: pytest.FixtureRequest) -> Make:
    """Both kinds of rollouts: with gae_lambda=1, advantages of GAE also are the whole return minus the value."""

    def make(size: int = 3, **hyper_parameters: Any) -> Any:
        if request.param == "GAEBuffer":
            return buffer(GAEBuffer, size, gae_lambda=1.0, **hyper_parameters)
        return buffer(VanillaOnPolicyBuffer, size, **hyper_parameters)

    return make


# Returns


def test_a_rollout_without_an_end_bootstraps_from_the_next_value(make: Make) -> None:
    storage = make()
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=obs))
    returns = by_observation(storage, RET)
    third = 3 + GAMMA * 40
    second = 2 + GAMMA * third
    assert returns == pytest.approx({3.0: third, 2.0: second, 1.0: 1 + GAMMA * second})
    advantages = by_observation(storage, ADV)
    assert advantages == pytest.approx({3.0: third - 30, 2.0: second - 20, 1.0: returns[1.0] - 10}, abs=1e-5)


def test_a_terminated_episode_does_not_bootstrap(make: Make) -> None:
    storage = make()
    storage.insert_transition(step(1, 2, reward=1))
    storage.insert_transition(step(2, 99, reward=2, terminated=1))
    storage.insert_transition(step(50, 51, reward=3, done=1))
    returns = by_observation(storage, RET)
    assert returns == pytest.approx({2.0: 2, 1.0: 1 + GAMMA * 2, 50.0: 3 + GAMMA * 510})
    assert 99.0 not in storage.actor.asked


def test_an_episode_cut_by_a_time_limit_bootstraps_from_its_own_last_observation(make: Make) -> None:
    storage = make()
    storage.insert_transition(step(1, 2, reward=1))
    storage.insert_transition(step(2, 7, reward=2, truncated=1))
    storage.insert_transition(step(50, 51, reward=3, done=1))
    returns = by_observation(storage, RET)
    assert returns[2.0] == pytest.approx(2 + GAMMA * 70)
    assert returns[1.0] == pytest.approx(1 + GAMMA * returns[2.0])


def test_steps_in_order_reset_the_recurrent_state_where_another_worker_goes_on(make: Make) -> None:
    storage = make(size=4)
    for number, begins in ((1, 1), (2, 0), (61, 0), (62, 0)):
        states = {RHS: np.full((1, 1), number, np.float32), RHS2: np.full((1, 1), number + 1, np.float32)}
        storage.insert_transition(step(number, number + 1, reward=0, done=begins) | states)
    batch = storage.in_order()
    assert batch[OBS].flatten().tolist() == [1, 2, 61, 62]
    assert batch[DONE].flatten().tolist() == [1, 0, 1, 0]
    assert batch[RHS].tolist() == [[1.0]]


def test_a_changed_gamma_is_used_by_the_next_returns(make: Make) -> None:
    storage = make(size=1)
    storage.insert_transition(step(1, 2, reward=1))
    assert by_observation(storage, RET)[1.0] == pytest.approx(1 + GAMMA * 20)
    storage.algorithm.gamma = 0.5
    assert by_observation(storage, RET)[1.0] == pytest.approx(11)


# Batches


def test_batches_do_not_change_with_the_next_rollout(make: Make) -> None:
    storage = make(size=2)
    for obs in (1, 2):
        storage.insert_transition(step(obs, obs + 1, reward=0))
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    kept = map_leaves(batch, torch.clone)
    storage.reset()
    for obs in (8, 9):
        storage.insert_transition(step(obs, obs + 1, reward=7))
    storage.before_gradients()
    assert equal(batch, kept)


def test_writing_to_a_batch_does_not_change_the_rollout(make: Make) -> None:
    storage = make(size=2)
    for obs in (1, 2):
        storage.insert_transition(step(obs, obs + 1, reward=1))
    storage.before_gradients()
    before = contents(storage)
    for batch in storage.generate_batches(2, None, 2):
        for leaf in batch.values():
            leaf.zero_()
    assert contents(storage) == before


def test_slices_contain_returns_only_while_these_match_the_stored_steps(make: Make) -> None:
    storage, receiver = make(size=3), make(size=3)
    storage.insert_transition(step(1, 2, reward=1))
    receiver.insert_data_slice(storage.get_all_buffer_data())
    storage.before_gradients()
    assert {RET, ADV} <= storage.get_all_buffer_data().keys()
    storage.insert_transition(step(2, 3, reward=1))
    assert not {RET, ADV} & storage.get_all_buffer_data().keys()
    storage.before_gradients()
    storage.reset()
    storage.insert_transition(step(3, 4, reward=1))
    data = storage.get_all_buffer_data()
    assert not {RET, ADV} & data.keys()
    receiver.insert_data_slice(data)
    assert len(receiver) == 2


# Saving and loading


def test_a_loaded_rollout_gives_the_same_batches_as_the_saved_one(make: Make) -> None:
    storage, loaded = make(size=4), make(size=4)
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=obs, truncated=obs == 2))
    loaded.load_state_dict(through_a_file(storage.state_dict()))
    batches = []
    for one in (storage, loaded):
        one.insert_transition(step(4, 5, reward=4))
        one.before_gradients()
        batches.append(list(one.generate_batches(2, None, 2)))
    for left, right in zip(*batches, strict=True):
        assert equal(left, right)


def test_loading_a_rollout_discards_earlier_returns(make: Make) -> None:
    storage, loaded = make(size=4), make(size=4)
    for one, first in ((storage, 1), (loaded, 5)):
        one.insert_transition(step(first, first + 1, reward=1))
    loaded.before_gradients()
    loaded.load_state_dict(through_a_file(storage.state_dict()))
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        loaded.generate_batches(1)
    assert by_observation(loaded, RET) == pytest.approx({1.0: 1 + GAMMA * 20})


# Refusals


def test_a_full_rollout_refuses_further_steps_and_keeps_its_data(make: Make) -> None:
    storage = make(size=1)
    storage.insert_transition(step(1, 2, reward=1))
    before = contents(storage)
    with pytest.raises(RuntimeError, match=r"rollout of 1 steps is full; call reset\(\) first"):
        storage.insert_transition(step(2, 3, reward=1))
    assert contents(storage) == before
    assert by_observation(storage, RET).keys() == {1.0}


def test_samples_without_values_are_refused(make: Make) -> None:
    sample = step(1, 2, reward=1)
    del sample[VAL]
    storage = make()
    with pytest.raises(SampleError, match="an on-policy sample needs Value"):
        storage.insert_transition(sample)
    assert len(storage) == 0


# Values that the actor computes when the rollout is full


class RecordingActor:
    """The value of an observation is ``scale`` times its first number; records the number of rows of each call."""

    def __init__(self) -> None:
        self.scale = 10.0
        self.rows: list[int] = []

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(obs))
        assert done.shape == (len(obs), 1)
        return self.scale * obs[:, :1]


def without_value(sample: Any) -> Any:
    return {key: value for key, value in sample.items() if key != VAL}


def test_values_are_computed_by_the_actor_at_the_update(make: Make) -> None:
    actor = RecordingActor()
    storage = make(actor=actor, values_when_full={VAL})
    for obs in (1, 2, 3):
        storage.insert_transition(without_value(step(obs, obs + 1, reward=obs)))
    assert actor.rows == []
    assert by_observation(storage, VAL) == {1.0: 10.0, 2.0: 20.0, 3.0: 30.0}
    actor.scale = 100.0
    assert by_observation(storage, VAL) == {1.0: 100.0, 2.0: 200.0, 3.0: 300.0}
    third = 3 + GAMMA * 400
    assert by_observation(storage, ADV)[3.0] == pytest.approx(third - 300, abs=1e-4)


def test_the_actor_evaluates_a_limited_number_of_observations_at_once(make: Make) -> None:
    actor = RecordingActor()
    storage = make(size=300, actor=actor, values_when_full={VAL})
    for obs in range(300):
        storage.insert_transition(without_value(step([obs, 1_000 + obs], [obs + 1, 1_001 + obs], reward=[0, 0])))
    values = by_observation(storage, VAL)
    assert max(actor.rows) <= 512
    assert sum(actor.rows) == 602
    assert values == {float(obs): 10.0 * obs for obs in (*range(300), *range(1_000, 1_300))}


def test_values_of_samples_are_used_if_they_are_given(make: Make) -> None:
    storage = make(size=1, actor=RecordingActor(), values_when_full={VAL})
    storage.insert_transition(step(1, 2, reward=1, terminated=1) | {VAL: np.full((1, 1), 7, np.float32)})
    assert by_observation(storage, VAL) == {1.0: 7.0}
    assert storage.actor.rows == []


def test_non_finite_values_give_no_returns_and_keep_the_rollout(make: Make) -> None:
    storage = make(size=2, actor=RecordingActor(), values_when_full={VAL})
    for obs in (1, 2):
        storage.insert_transition(without_value(step(obs, obs + 1, reward=obs)))
    storage.actor.scale = float("nan")
    with pytest.raises(ValueError, match=r"actor.value returned nan at position \(0,\); no returns were computed"):
        storage.before_gradients()
    with pytest.raises(RuntimeError, match="call before_gradients"):
        storage.generate_batches(1)
    storage.actor.scale = 1.0
    assert by_observation(storage, VAL) == {1.0: 1.0, 2.0: 2.0}


def test_values_in_a_slice_are_replaced_by_those_of_the_receiving_actor(make: Make) -> None:
    one = make(size=2, actor=RecordingActor(), values_when_full={VAL})
    other = make(size=3, actor=RecordingActor(), values_when_full={VAL})
    for obs in (1, 2):
        one.insert_transition(without_value(step(obs, obs + 1, reward=obs)))
    one.before_gradients()
    other.insert_data_slice(one.get_all_buffer_data())
    other.insert_transition(without_value(step(3, 4, reward=3)))
    other.actor.scale = 100.0
    assert by_observation(other, VAL) == {1.0: 100.0, 2.0: 200.0, 3.0: 300.0}


@pytest.mark.parametrize("shape", [(2,), (2, 3)])
@pytest.mark.parametrize("key", [VAL, LOGP])
def test_values_without_their_trailing_axis_of_one_are_refused_when_inserted(
    make: Make, key: str, shape: tuple[int, ...]
) -> None:
    storage = make()
    with pytest.raises(SampleError, match=rf"{key} must have shape \(2, 1\), got"):
        storage.insert_transition(step([1, 2], [2, 3], [0, 0]) | {key: np.zeros(shape, np.float32)})
    assert len(storage) == 0


def test_batches_of_an_empty_rollout_or_without_returns_are_refused(make: Make) -> None:
    storage = make()
    with pytest.raises(EmptyStorageError, match="insert transitions first"):
        storage.generate_batches(1)
    with pytest.raises(EmptyStorageError, match="insert transitions first"):
        storage.before_gradients()
    storage.insert_transition(step(1, 2, reward=1))
    with pytest.raises(
        RuntimeError, match=r"call before_gradients\(\) first, which computes ExternalReturn and Advantage"
    ):
        storage.generate_batches(1)
    storage.before_gradients()
    storage.insert_transition(step(2, 3, reward=1))
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        storage.generate_batches(1)
    storage.before_gradients()
    storage.reset()
    with pytest.raises(EmptyStorageError, match="insert transitions first"):
        storage.generate_batches(1)
    storage.insert_transition(step(2, 3, reward=1))
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        storage.generate_batches(1)


def test_batches_are_refused_if_rewards_were_replaced_after_returns_were_computed(make: Make) -> None:
    storage = make()
    storage.insert_transition(step(1, 2, reward=1))
    storage.before_gradients()
    storage.insert_single_tensor_slice(REW, np.full((1, 1, 1), 5, np.float32))
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        storage.generate_batches(1)
    assert by_observation(storage, RET) == pytest.approx({1.0: 5 + GAMMA * 20})


@pytest.mark.parametrize(
    ("num_mini_batch", "mini_batch_size", "message"),
    [
        (0, None, "num_mini_batch must be at least 1, got 0"),
        (3, None, "2 transitions cannot fill 3 batches"),
        (1, 5, "2 transitions do not divide into 1 batches of mini_batch_size=5; mini_batch_size=None"),
        (2, 2, "2 transitions do not divide into 2 batches of mini_batch_size=2"),
    ],
)
def test_impossible_numbers_and_sizes_of_batches_are_refused(
    make: Make, num_mini_batch: int, mini_batch_size: Any, message: str
) -> None:
    storage = make()
    for obs in (1, 2):
        storage.insert_transition(step(obs, obs + 1, reward=1))
    storage.before_gradients()
    with pytest.raises(ValueError, match=message):
        storage.generate_batches(num_mini_batch, mini_batch_size)


def test_a_batch_size_that_divides_the_rollout_is_accepted(make: Make) -> None:
    storage = make()
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=1))
    storage.before_gradients()
    assert [len(batch[OBS]) for batch in storage.generate_batches(3, 1)] == [1, 1, 1]


def test_no_returns_are_available_after_an_error_of_the_actor(make: Make) -> None:
    class Broken:
        def value(self, obs: torch.Tensor, rhs: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError

    storage = make(size=1, actor=Broken())
    storage.insert_transition(step(1, 2, reward=1))
    with pytest.raises(ArithmeticError):
        storage.before_gradients()
    with pytest.raises(RuntimeError, match="call before_gradients"):
        storage.generate_batches(1)


def test_a_loaded_rollout_knows_how_many_transitions_were_ever_inserted(make: Make) -> None:
    storage, loaded = make(size=3), make(size=3)
    for number in range(5):
        if number == 3:
            storage.reset()
        storage.insert_transition(step(number, number + 1, reward=1))
    loaded.load_state_dict(through_a_file(storage.state_dict()))
    assert loaded.inserted == storage.inserted == 5


def test_a_sequence_length_that_does_not_divide_the_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match="GAEBuffer: sequence_length must divide size=5, got 2"):
        GAEBuffer.create_factory(size=5, sequence_length=2)
