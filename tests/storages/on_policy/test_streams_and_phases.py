"""Rollouts of several workers, batches of a removed rollout, and invalid outputs of actors and invalid arguments."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import EmptyStorageError, GAEBuffer, ReplayBuffer, SampleError, VanillaOnPolicyBuffer, VTraceBuffer
from storages.transition import ACT, ADV, DONE, LOGP, OBS, RET, RHS, RHS2, VAL
from tests.support.model import ALGORITHM, equal
from tests.support.rollouts import FakeActor, buffer, step

CLASSES = [VanillaOnPolicyBuffer, GAEBuffer, VTraceBuffer]


class RecordingActor(FakeActor):
    """Records the flags that reset its recurrent state."""

    def __init__(self) -> None:
        super().__init__()
        self.resets: Any = None

    def evaluate_actions(self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor) -> Any:
        self.resets = done[..., 0].clone()
        return obs, 10 * obs


def recurrent_step(obs: float, **more: Any) -> dict[str, Any]:
    memory = np.array([[obs, 0]], np.float32)
    return step(obs, obs + 1, 1, **more) | {RHS: memory, RHS2: memory + np.array([[1, 0]], np.float32)}


def of_two_workers(cls: Any, actor: Any, **hyper_parameters: Any) -> Any:
    storage = buffer(cls, 6, actor=actor, **hyper_parameters)
    for worker in (0, 100):
        for t in (5, 6, 7):
            storage.insert_transition(recurrent_step(worker + t))
    storage.before_gradients()
    return storage


@pytest.mark.parametrize("cls", CLASSES)
def test_the_recurrent_state_is_reset_at_the_first_step_of_another_worker(cls: Any) -> None:
    actor = RecordingActor()
    storage = of_two_workers(cls, actor)
    (batch,) = storage.generate_batches(1)
    assert batch[OBS][:, 0, 0].tolist() == [5, 6, 7, 105, 106, 107]
    assert batch[DONE][:, 0, 0].tolist() == [0, 0, 0, 1, 0, 0]
    if cls is VTraceBuffer:
        assert actor.resets[:, 0].tolist() == [0, 0, 0, 1, 0, 0]
    # The stored flags stay those of the collector.
    assert not storage.get_all_buffer_data()[DONE].any()


@pytest.mark.parametrize("cls", CLASSES)
def test_a_sequence_that_begins_with_another_worker_has_its_recurrent_state(cls: Any) -> None:
    storage = of_two_workers(cls, RecordingActor(), sequence_length=3)
    (batch,) = storage.generate_batches(1)
    assert not batch[DONE].any()
    assert sorted(batch[RHS][:, 0].tolist()) == [5, 105]


@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer])
def test_a_prepared_rollout_can_be_inserted_into_the_same_and_other_storages(cls: Any) -> None:
    one, other = buffer(cls, 3), buffer(cls, 3)
    for obs in (1, 2, 3):
        one.insert_transition(step(obs, obs + 1, 1))
    one.before_gradients()
    data = one.get_all_buffer_data()
    assert {RET, ADV} <= data.keys()
    one.reset()
    for storage in (one, other):
        storage.insert_data_slice(data)
        assert {RET, ADV}.isdisjoint(storage.get_all_buffer_data())
        storage.before_gradients()
        assert equal(storage.get_all_buffer_data(), data)
        storage.reset()
        storage.insert_transition(step(7, 8, 1))
    replay = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, None)
    replay.insert_data_slice(data)
    assert equal(replay.get_all_buffer_data()[RET], data[RET])


@pytest.mark.parametrize("key", [RET, ADV])
@pytest.mark.parametrize("cls", CLASSES)
def test_a_sample_with_a_computed_field_is_refused(cls: Any, key: str) -> None:
    storage = buffer(cls)
    with pytest.raises(SampleError, match=f"{cls.__name__}: {key} is a field that the storage computes"):
        storage.insert_transition(step(1, 2, 1) | {key: np.zeros((1, 1), np.float32)})
    assert len(storage) == 0
    storage.insert_transition(step(1, 2, 1))


@pytest.mark.parametrize("sample", [step, lambda obs, obs2, reward: recurrent_step(obs)])
def test_batches_of_a_removed_or_changed_rollout_are_refused(sample: Any) -> None:
    storage = buffer(GAEBuffer, 4)

    def fill(steps: int) -> None:
        for obs in range(steps):
            storage.insert_transition(sample(obs, obs + 1, 1))
        storage.before_gradients()

    fill(4)
    batches = storage.generate_batches(1, None, 3)
    begun = storage.generate_batches(1)
    next(batches)
    storage.reset()
    for iterator in (batches, begun):
        with pytest.raises(EmptyStorageError, match="no batch can be made of an empty storage"):
            next(iterator)
    fill(2)
    batches = storage.generate_batches(1, None, 3)
    next(batches)
    storage.insert_transition(sample(2, 3, 1))
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        next(batches)
    storage.before_gradients()
    batches = storage.generate_batches(1, None, 3)
    storage.reset()
    fill(3)
    with pytest.raises(RuntimeError, match="the rollout changed while its batches were generated"):
        next(batches)


class FixedActor(FakeActor):
    """Returns a given output."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> Any:
        return self.answer

    def evaluate_actions(self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor) -> Any:
        return self.answer, 10 * obs


UNUSABLE = [
    (torch.zeros(2), r"must return a tensor of shape \(2, 1\), .*, got \(2,\)"),
    (torch.zeros(1, 1), r"must return a tensor of shape \(2, 1\), .*, got \(1, 1\)"),
    (torch.zeros(2, 3), r"must return a tensor of shape \(2, 1\), .*, got \(2, 3\)"),
    (np.zeros((2, 1)), r"must return a tensor of shape \(2, 1\), .*, got ndarray"),
    (torch.tensor([[0.0], [torch.nan]]), r"returned nan at position \(1,\); no returns were computed"),
]


@pytest.mark.parametrize(("answer", "message"), UNUSABLE)
@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer])
def test_values_that_are_not_one_finite_number_for_each_observation_are_refused(
    cls: Any, answer: Any, message: str
) -> None:
    storage = buffer(cls, actor=FixedActor(answer))
    storage.insert_transition(step([1, 2], [2, 3], [1, 1]))
    with pytest.raises(ValueError, match=f"{cls.__name__}: actor.value {message}"):
        storage.before_gradients()
    with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
        storage.generate_batches(1)


@pytest.mark.parametrize("answer", [torch.zeros(1, 2), torch.zeros(1, 2, 3), torch.full((1, 2, 1), torch.inf)])
def test_invalid_log_probabilities_are_refused(answer: Any) -> None:
    storage = buffer(VTraceBuffer, actor=FixedActor(answer))
    storage.insert_transition(step([1, 2], [2, 3], [1, 1]))
    with pytest.raises(ValueError, match=r"VTraceBuffer: actor\.evaluate_actions "):
        storage.before_gradients()


def test_half_precision_values_and_allowed_non_finite_values_are_accepted() -> None:
    storage = buffer(GAEBuffer, actor=FixedActor(torch.ones(1, 1, dtype=torch.bfloat16)))
    storage.insert_transition(step(1, 2, 1))
    storage.before_gradients()
    lenient = buffer(GAEBuffer, actor=FixedActor(torch.full((1, 1), torch.nan)), allow_nonfinite=True)
    lenient.insert_transition(step(1, 2, 1))
    lenient.before_gradients()
    assert lenient.get_all_buffer_data()[RET].isnan().all()


@pytest.mark.parametrize("key", [VAL, LOGP])
@pytest.mark.parametrize("first", [True, False])
def test_non_finite_values_and_log_probabilities_are_refused(key: str, first: bool) -> None:
    storage = buffer(GAEBuffer)
    if not first:
        storage.insert_transition(step(1, 2, 1))
    wrong = step(2, 3, 1) | {key: np.full((1, 1), np.nan, np.float32)}
    with pytest.raises(SampleError, match=f"GAEBuffer: {key} of environment 0 is nan at step"):
        storage.insert_transition(wrong)
    assert len(storage) == (0 if first else 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_non_finite_actions_are_refused_in_slices_and_transitions(dtype: Any) -> None:
    storage = buffer(ReplayBuffer)
    data = {key: value[None] for key, value in step(1, 2, 1).items()} | {ACT: np.full((1, 1, 1), np.nan, dtype)}
    with pytest.raises(SampleError, match=r"ReplayBuffer: Action of environment 0 is .*nan.* at step 0"):
        storage.insert_data_slice(data)
    storage.insert_transition(step(1, 2, 1) | {ACT: np.zeros((1, 1), dtype)})
    with pytest.raises(SampleError, match="ReplayBuffer: Action of environment 0"):
        storage.insert_transition(step(2, 3, 1) | {ACT: np.full((1, 1), np.inf, dtype)})


@pytest.mark.parametrize("cls", [GAEBuffer, ReplayBuffer])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "num_mini_batch must be at least 1, got 0"),
        ((1, 0), "mini_batch_size must be at least 1, got 0"),
        ((1, 4, 0), "num_epochs must be at least 1, got 0"),
        ((1, 4, -1), "num_epochs must be at least 1, got -1"),
        ((1, 4.0), "mini_batch_size must be an int, got 4.0"),
        (("2", 4), "num_mini_batch must be an int, got '2'"),
        ((True, 4), "num_mini_batch must be an int, got True"),
        ((1, 4, None), "num_epochs must be an int, got None"),
    ],
)
def test_generate_batches_validates_its_arguments_when_it_is_called(cls: Any, arguments: Any, message: str) -> None:
    storage = buffer(cls, 4)
    for obs in range(4):
        storage.insert_transition(step(obs, obs + 1, 1))
    storage.before_gradients()
    with pytest.raises(ValueError, match=f"{cls.__name__}: {message}"):
        storage.generate_batches(*arguments)
    assert len(list(storage.generate_batches(np.int64(1), np.int32(4), 2))) == 2


@pytest.mark.parametrize("gamma", [torch.tensor(0.9), float("nan"), -1, 1.5, "0.9", None, True])
@pytest.mark.parametrize("cls", [GAEBuffer, ReplayBuffer])
def test_an_invalid_discount_factor_is_refused_when_a_storage_is_made_and_used(cls: Any, gamma: Any) -> None:
    algorithm = SimpleNamespace(gamma=gamma)
    with pytest.raises(ValueError, match=f"{cls.__name__}: the algorithm's gamma must"):
        cls.create_factory(size=3)("cpu", FakeActor(), algorithm, None)
    storage = buffer(cls)
    storage.insert_transition(step(1, 2, 1))
    storage.algorithm.gamma = gamma
    with pytest.raises(ValueError, match=f"{cls.__name__}: the algorithm's gamma must"):  # noqa: PT012
        storage.before_gradients()
        next(storage.generate_batches(1, 1))
