"""Bad input raises an error that names the field and the remedy, and leaves the stored data unchanged."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import EmptyStorageError, ReplayBuffer, SampleError
from storages.core.ring import insertion
from storages.transition import ACT, DONE, DONE2, IREW, OBS, OBS2, REW, RHS2, TRUNC2
from tests.support.model import ALGORITHM, Stream, contents, environments, map_leaves, replay_buffer

NUM_ENVS = 2


def good(kind: str = "vector", seed: int = 0, recurrent: bool = False) -> dict[str, Any]:
    return Stream(NUM_ENVS, kind, recurrent, np.random.default_rng(seed)).step()


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in good().items() if name != key}


LATER = {
    "missing field": (without(ACT), "Action was in the first sample and is missing now"),
    "unknown field": (
        good() | {"Rewrad": good()[REW]},
        "Rewrad was not in the first sample, which fixed the fields: .*Reward",
    ),
    "shape": (
        good() | {OBS: np.zeros((2, 4), np.float32)},
        r"Observation had shape \(2, 3\) in the first sample, now it has \(2, 4\)",
    ),
    "dtype": (
        good() | {OBS: good()[OBS].astype(np.float64)},
        "Observation had dtype float32 in the first sample, now it has float64",
    ),
    "no trailing axis": (
        good() | {REW: np.zeros(2, np.float32)},
        r"Reward had shape \(2, 1\) in the first sample, now it has \(2,\)",
    ),
    "shape of a flag": (good() | {DONE2: np.zeros(2, bool)}, r"NextDone had shape \(2, 1\)"),
    "environments": (
        Stream(3, "vector", False, np.random.default_rng(0)).step(),
        r"had shape \(2, 3\) in the first sample, now it has \(3, 3\)",
    ),
    "dict for an array": (
        good() | {OBS: {"a": good()[OBS]}},
        r"Observation\['a'\] was not in the first sample, which fixed the fields: Observation",
    ),
    "recurrent state that the first sample lacks": (
        good(recurrent=True),
        "RecurrentHiddenStates was not in the first sample, which fixed the fields: Observation",
    ),
    "not an array": (good() | {REW: [[1.0], [2.0]]}, "Reward must be an array or a tensor, got list"),
    "nan reward": (good() | {REW: np.array([[1], [np.nan]], np.float32)}, "Reward of environment 1 is nan at step 3"),
    "infinite reward": (
        good() | {REW: np.array([[-np.inf], [0]], np.float32)},
        "Reward of environment 0 is -inf at step 3.*allow_nonfinite=True",
    ),
    "nan observation": (
        good() | {OBS: np.array([[0, np.nan, 0], [0, 0, 0]], np.float32)},
        r"Observation of environment 0 is nan at step 3 \(position \(1,\)\)",
    ),
    "nan next observation": (
        good() | {OBS2: np.array([[0, 0, 0], [0, 0, np.inf]], np.float32)},
        "NextObservation of environment 1 is inf at step 3",
    ),
}

FIRST = {
    "missing field": (without(REW), "a sample needs Observation, .*; Reward is missing"),
    "no trailing axis": (good() | {REW: np.zeros(2, np.float32)}, r"Reward must have shape \(2, 1\), got \(2,\)"),
    "shape of a flag": (
        good() | {TRUNC2: np.zeros((2, 2), bool)},
        r"NextTruncated must have shape \(2, 1\), got \(2, 2\)",
    ),
    "observations of different shapes": (
        good() | {OBS2: np.zeros((2, 4), np.float32)},
        "NextObservation must have the shape and dtype of Observation",
    ),
    "next recurrent state without recurrent state": (
        good() | {RHS2: np.zeros((2, 4), np.float32)},
        "NextRecurrentHiddenStates must have the shape and dtype of RecurrentHiddenStates, .* beside nothing",
    ),
    "different numbers of environments": (
        good() | {ACT: np.zeros((3, 1))},
        r"the first axis of every field must be the environments; Done has 2 of them, Action has shape \(3, 1\)",
    ),
    "no environments": (good() | {DONE: np.float32(0)}, "Done must be an array or a tensor|Done has 0 of them"),
    "objects": (good() | {ACT: np.array([[None], [None]])}, "Action must have a numeric dtype .*got dtype .*O"),
    "strings": (good() | {ACT: np.array([["a"], ["b"]])}, "Action must have a numeric dtype .*got dtype"),
    "dtype that tensors lack": (
        good() | {ACT: np.zeros((2, 1), np.longdouble)},
        "Action must have a numeric dtype .*got dtype <f16",
    ),
    "foreign byte order": (good() | {ACT: np.zeros((2, 1), ">f4")}, "Action must have a numeric dtype .*got dtype >f4"),
    "dtype that arrays lack": (
        good() | {ACT: torch.zeros((2, 1), dtype=torch.bfloat16)},
        "Action must have a dtype .*bfloat16",
    ),
    "nested dict": (
        good() | {OBS: {"a": {"b": good()[OBS]}}, OBS2: {"a": {"b": good()[OBS]}}},
        r"Observation\['a'\] must be an array or a tensor, got dict",
    ),
    "different keys of observations": (
        good() | {OBS: {"a": good()[OBS]}, OBS2: {"b": good()[OBS]}},
        "NextObservation must have the shape and dtype of Observation",
    ),
    "nan": (good() | {REW: np.full((2, 1), np.nan, np.float32)}, "Reward of environment 0 is nan at step 0"),
}


@pytest.mark.parametrize("case", LATER)
def test_an_invalid_later_sample_is_refused_and_leaves_the_storage_unchanged(case: str) -> None:
    storage = replay_buffer(5)
    for seed in range(3):
        storage.insert_transition(good(seed=seed))
    before = contents(storage)
    sample, message = LATER[case]
    with pytest.raises(SampleError, match=f"ReplayBuffer: .*{message}"):
        storage.insert_transition(sample)
    assert contents(storage) == before
    storage.insert_transition(good(seed=4))
    assert len(storage) == 8


@pytest.mark.parametrize("key", [OBS, OBS2])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda stacks: stacks[:, :, :1], r"had shape \(2, 3, 2, 1\) in the first sample, now it has \(2, 3, 1, 1\)"),
        (lambda stacks: stacks[:1], r"had shape \(2, 3, 2, 1\) in the first sample, now it has \(1, 3, 2, 1\)"),
        (lambda stacks: stacks.astype(np.float64), "had dtype uint8 in the first sample, now it has float64"),
    ],
)
def test_frame_stacks_of_a_wrong_shape_or_dtype_are_refused_before_they_are_read(
    key: str, changed: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = replay_buffer(5, envs=environments("frames", NUM_ENVS))
    stream = Stream(NUM_ENVS, "frames", False, np.random.default_rng(0))
    for _ in range(3):
        storage.insert_transition(stream.step())
    before, sample = contents(storage), stream.step()
    with monkeypatch.context() as patched:
        # This function reads memory by address, as far as stacks of the right shape and dtype extend.
        patched.setattr(insertion, "insert_steps_with_stacks", lambda *_: pytest.fail("frames were read"))
        with pytest.raises(SampleError, match=f"{key} {message}"):
            storage.insert_transition(sample | {key: changed(sample[key])})
    assert contents(storage) == before
    storage.insert_transition(sample)
    assert len(storage) == 8


@pytest.mark.parametrize(
    ("number", "dtype", "key"),
    [(np.nan, np.float16, OBS), (np.inf, np.float32, OBS2), (-np.inf, np.float64, OBS), (np.nan, np.float32, OBS)],
)
def test_non_finite_numbers_are_found_in_every_position(number: float, dtype: Any, key: str) -> None:
    storage, finite = replay_buffer(5), np.zeros((2, 2, 3), dtype)
    storage.insert_transition(good() | {OBS: finite, OBS2: finite})
    before = contents(storage)
    for where in np.ndindex(finite.shape):
        observation = finite.copy()
        observation[where] = number
        sample = good() | {OBS: finite, OBS2: finite} | {key: observation}
        message = rf"{key} of environment {where[0]} is {number} at step 1 \(position \({where[1]}, {where[2]}\)\)"
        with pytest.raises(SampleError, match=message):
            storage.insert_transition(sample)
        with pytest.raises(SampleError, match=message):
            storage.insert_transition(map_leaves(sample, torch.from_numpy))
    assert contents(storage) == before


def test_non_finite_intrinsic_rewards_are_refused() -> None:
    storage = replay_buffer(5)
    storage.insert_transition(good() | {IREW: np.zeros((2, 1), np.float32)})
    with pytest.raises(SampleError, match="IntrinsicReward of environment 1 is nan at step 1"):
        storage.insert_transition(good() | {IREW: np.array([[0], [np.nan]], np.float32)})


@pytest.mark.parametrize("case", FIRST)
def test_an_invalid_first_sample_is_refused_and_does_not_fix_the_fields(case: str) -> None:
    storage = replay_buffer(5)
    sample, message = FIRST[case]
    with pytest.raises(SampleError, match=message):
        storage.insert_transition(sample)
    assert (len(storage), storage.num_envs) == (0, 0)
    storage.insert_transition(good("image"))
    assert len(storage) == 2


def test_non_finite_numbers_are_found_in_dict_observations() -> None:
    storage = replay_buffer(5)
    sample = good("dict")
    sample[OBS2]["a"][1, 0] = np.nan
    with pytest.raises(SampleError, match=r"NextObservation\['a'\] of environment 1 is nan at step 0"):
        storage.insert_transition(sample)


def test_allow_nonfinite_stores_non_finite_numbers() -> None:
    storage = replay_buffer(5, allow_nonfinite=True)
    reward = np.array([[np.nan], [np.inf]], np.float32)
    observation = np.full((2, 3), np.nan, np.float32)
    for _ in range(4):
        storage.insert_transition(good() | {REW: reward, OBS2: observation, OBS: observation, DONE2: np.zeros((2, 1))})
    data = storage.get_all_buffer_data()
    assert data[REW].numpy().tobytes() == np.stack([reward] * 4).tobytes()
    assert data[OBS2].isnan().all()
    storage.update_storage_parameter("allow_nonfinite", False)
    with pytest.raises(SampleError, match="is nan"):
        storage.insert_transition(good() | {REW: reward})


def test_generate_batches_refuses_an_empty_storage() -> None:
    with pytest.raises(EmptyStorageError, match="ReplayBuffer: no batch can be made of an empty storage; insert"):
        replay_buffer(5).generate_batches(1, 8)


def test_a_replay_buffer_requires_a_batch_size() -> None:
    storage = replay_buffer(5)
    storage.insert_transition(good())
    with pytest.raises(ValueError, match="needs a mini_batch_size, got None"):
        storage.generate_batches(1, None)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 4), (3, 2)])
def test_slices_out_of_range_are_refused(start: int, end: int) -> None:
    storage = replay_buffer(5)
    for seed in range(3):
        storage.insert_transition(good(seed=seed))
    with pytest.raises(IndexError, match=f"steps {start} to {end} are out of range, with 3 steps stored"):
        storage.get_data_slice(start, end)


@pytest.mark.parametrize(
    ("key", "values", "start", "message"),
    [
        ("Rewrad", np.zeros((1, 2, 1), np.float32), 0, "Rewrad cannot be replaced on its own, only Action, Reward"),
        (OBS, np.zeros((1, 2, 3), np.float32), 0, "Observation cannot be replaced on its own"),
        (DONE2, np.zeros((1, 2, 1)), 0, "NextDone cannot be replaced on its own"),
        (REW, np.zeros((1, 2, 1)), 0, r"Reward is float32\(steps, 2, 1\), got float64\(1, 2, 1\)"),
        (OBS2, np.zeros((1, 2, 3), np.float32), 0, "NextObservation cannot be replaced on its own"),
        (REW, np.zeros((1, 3, 1), np.float32), 0, r"got float32\(1, 3, 1\)"),
        (REW, np.zeros((1, 2, 1), np.float32), -1, "steps -1 to 0 of Reward are out of range, with 3"),
        (REW, [[[0.0], [0.0]]], 0, "Reward must be an array or a tensor, got list"),
        (REW, np.full((1, 2, 1), np.nan, np.float32), 0, "Reward.* is nan"),
        (REW, np.zeros((2, 2, 1), np.float32), 2, "steps 2 to 4 of Reward are out of range, with 3 steps stored"),
    ],
)
def test_invalid_replacements_of_a_field_are_refused(key: str, values: Any, start: int, message: str) -> None:
    storage = replay_buffer(5)
    for seed in range(3):
        storage.insert_transition(good(seed=seed))
    before = contents(storage)
    with pytest.raises(SampleError, match=message):
        storage.insert_single_tensor_slice(key, values, start)
    assert contents(storage) == before


def test_allow_nonfinite_permits_non_finite_replacements() -> None:
    storage = replay_buffer(5, allow_nonfinite=True)
    storage.insert_transition(good())
    storage.insert_single_tensor_slice(REW, torch.full((1, 2, 1), np.nan))
    assert storage.get_all_buffer_data()[REW].isnan().all()


def test_a_state_of_another_size_or_number_of_environments_is_refused() -> None:
    storage = replay_buffer(5)
    storage.insert_transition(good())
    with pytest.raises(ValueError, match="made with size 6, saved with 5"):
        replay_buffer(6).load_state_dict(storage.state_dict())
    other = replay_buffer(5)
    other.insert_transition(Stream(3, "vector", False, np.random.default_rng(0)).step())
    with pytest.raises(ValueError, match="made for 3 environments, saved with 2"):
        other.load_state_dict(storage.state_dict())
    assert len(other) == 3


def test_a_refused_state_leaves_the_stored_data_and_the_next_batch_unchanged() -> None:
    storage, twin, other = replay_buffer(5), replay_buffer(5), replay_buffer(6)
    for one in (storage, twin):
        one.insert_transition(good())
    other.insert_transition(good(seed=1))
    before = contents(storage)
    with pytest.raises(ValueError, match="made with size 5, saved with 6"):
        storage.load_state_dict(other.state_dict())
    assert contents(storage) == before
    drawn = [next(iter(one.generate_batches(1, 50)))["Indices"].tolist() for one in (storage, twin)]
    assert drawn[0] == drawn[1]


def test_an_empty_storage_refuses_a_state_of_another_number_of_environments() -> None:
    storage = replay_buffer(5)
    storage.insert_transition(good())
    made_for_three = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, SimpleNamespace(num_envs=3))
    with pytest.raises(ValueError, match="made for 3 environments, saved with 2"):
        made_for_three.load_state_dict(storage.state_dict())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sise", 3, "unknown hyper-parameter 'sise'; did you mean 'size'"),
        ("size", 3, "size is fixed once the object is made"),
        ("allow_nonfinite", 3, "allow_nonfinite must be a bool, got 3"),
    ],
)
def test_updates_of_unknown_or_fixed_parameters_and_invalid_values_are_refused(
    name: str, value: Any, message: str
) -> None:
    storage = replay_buffer(5)
    storage.insert_transition(good())
    before = contents(storage)
    with pytest.raises(ValueError, match=f"ReplayBuffer: {message}"):
        storage.update_storage_parameter(name, value)
    assert contents(storage) == before
    assert (storage.size, storage.capacity, storage.allow_nonfinite) == (5, 10, False)
