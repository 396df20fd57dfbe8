"""Allowed names and contents of the fields of a sample, and the dtypes in which they are returned."""

from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    Episode,
    GAEBuffer,
    NStepReplayBuffer,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    SampleError,
    Sequences,
)
from storages.transition import (
    ACT,
    BATCH_FIELDS,
    DISCOUNT,
    INDICES,
    LOGP,
    MASK,
    OBS,
    OBS2,
    REW,
    VAL,
    WEIGHTS,
)
from tests.support.model import ALGORITHM, environments, equal, through_a_file
from tests.support.rollouts import FakeActor, step


def made(cls: Any = ReplayBuffer, envs: Any = None, **hyper_parameters: Any) -> Any:
    storage = cls.create_factory(**({"size": 10} | hyper_parameters))("cpu", FakeActor(), ALGORITHM, envs)
    storage.seed(0)
    return storage


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("hyper_parameters", [{}, {"n_step": 3}, {"sequences": Sequences(2)}])
def test_integer_rewards_are_float32_in_every_batch(hyper_parameters: Any, dtype: Any) -> None:
    storage = made(NStepReplayBuffer, **hyper_parameters)
    for obs in range(5):
        storage.insert_transition(step(obs, obs + 1, 1) | {REW: np.ones((1, 1), dtype)})
    assert next(storage.generate_batches(1, 4))[REW].dtype == torch.float32
    data = storage.get_all_buffer_data()
    assert data[REW].dtype == torch.float32
    # Also rewards that are integers in some samples only.
    storage.insert_transition(step(5, 6, 0.5))
    storage.insert_transition(step(6, 7, 1) | {REW: torch.ones(1, 1, dtype=torch.int64)})
    storage.insert_single_tensor_slice(REW, np.full((1, 1, 1), 3), 0)
    assert storage.get_all_buffer_data()[REW].flatten().tolist() == [3, 1, 1, 1, 1, 0.5, 1]
    double = made()
    double.insert_transition(step(0, 1, 1) | {REW: np.ones((1, 1))})
    assert next(double.generate_batches(1, 1))[REW].dtype == torch.float64


def test_integer_rewards_and_values_give_the_same_returns_as_floats() -> None:
    one, other = made(GAEBuffer, size=5), made(GAEBuffer, size=5)
    for obs in range(5):
        one.insert_transition(step(obs, obs + 1, obs))
        whole = {REW: np.full((1, 1), obs), VAL: np.full((1, 1), 10 * obs), LOGP: np.full((1, 1), obs)}
        other.insert_transition(step(obs, obs + 1, obs) | whole)
    for storage in (one, other):
        storage.before_gradients()
    assert equal(one.get_all_buffer_data(), other.get_all_buffer_data())


def test_integer_rewards_of_added_episodes_are_float32(tmp_path: Any) -> None:
    factory = PersistentEpisodicBuffer.create_factory(size=100, directory=tmp_path / "e", n_step=2)
    for _ in range(2):
        storage = factory("cpu", None, ALGORITHM, None)
        fields = {ACT: np.zeros((5, 1), np.float32), REW: np.arange(5)[:, None]}
        storage.add_episode(Episode(np.zeros((6, 2), np.float32), fields, terminated=True, truncated=False))
        assert next(storage.generate_batches(1, 4))[REW].dtype == torch.float32
        assert next(storage.episodes()).fields[REW].ravel().tolist() == [0, 1, 2, 3, 4]
        storage.close()


@pytest.mark.parametrize("key", sorted(BATCH_FIELDS))
@pytest.mark.parametrize("cls", [ReplayBuffer, GAEBuffer])
def test_a_field_that_batches_add_is_refused_at_the_first_insertion(cls: Any, key: str) -> None:
    storage = made(cls)
    with pytest.raises(SampleError, match=f"{cls.__name__}: {key} is a field that batches add"):
        storage.insert_transition(step(1, 2, 1) | {key: np.zeros((1, 1), np.float32)})
    storage.insert_transition(step(1, 2, 1))
    assert {WEIGHTS, INDICES, DISCOUNT, MASK} <= BATCH_FIELDS


NUMBERS = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({OBS: {}, OBS2: {}}, "Observation is a dict without arrays"),
        ({3: NUMBERS}, "names of fields and of parts of observations must be str, got 3"),
        ({OBS: {1: NUMBERS}, OBS2: {1: NUMBERS}}, "names of fields and of parts of observations must be str, got 1"),
        (
            {OBS: np.ma.array(NUMBERS, mask=NUMBERS < 1)},
            r"Observation is a masked array; give it values with filled\(\)",
        ),
        ({OBS: {"a": {"b": NUMBERS}}}, r"Observation\['a'\] must be an array or a tensor, got dict; .* by slashes"),
        ({OBS: (NUMBERS, NUMBERS)}, "Observation must be an array or a tensor, got tuple; give a dict with a name for"),
    ],
)
@pytest.mark.parametrize("cls", [ReplayBuffer, GAEBuffer])
def test_fields_that_are_not_named_arrays_are_refused_with_a_remedy(cls: Any, fields: Any, message: str) -> None:
    storage = made(cls)
    with pytest.raises(SampleError, match=f"{cls.__name__}: {message}"):
        storage.insert_transition(step(1, 2, 1) | fields)
    assert not storage.ring.layout


@pytest.mark.parametrize("frames", [1, {"x": 1}, {"x": 0}])
def test_observations_with_stacks_of_one_or_zero_frames_can_be_saved_and_loaded(frames: Any) -> None:
    envs = environments("frames", 1)
    envs.stacked_frames = frames
    storages = [made(envs=envs) for _ in range(2)]
    for t in range(15):
        obs, obs2 = (np.full((1, 1, 3), number, np.float32) for number in (t, t + 1))
        if isinstance(frames, dict):
            obs, obs2 = {"x": obs}, {"x": obs2}
        storages[0].insert_transition(step(t, t + 1, 1) | {OBS: obs, OBS2: obs2})
    storages[1].load_state_dict(through_a_file(storages[0].state_dict()))
    assert equal(*(next(storage.generate_batches(1, 8)) for storage in storages))
    assert equal(*(storage.get_all_buffer_data() for storage in storages))


@pytest.mark.parametrize(
    ("cls", "hyper_parameters"), [(ReplayBuffer, {}), (ReplayBuffer, {"directory": "here"}), (GAEBuffer, {})]
)
def test_loading_an_incomplete_state_raises_an_error_that_names_the_missing_entries(
    cls: Any, hyper_parameters: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = made(cls, **hyper_parameters)
    storage.insert_transition(step(1, 2, 1))
    with pytest.raises(ValueError, match=f"{cls.__name__}: the state lacks 'ring', 'generator'.*; it has 'x'"):
        storage.load_state_dict({"x": 1})
    state = storage.state_dict()
    if "ring" in state:
        with pytest.raises(ValueError, match="the state lacks 'generator', which"):
            storage.load_state_dict({name: value for name, value in state.items() if name != "generator"})
    assert len(storage) == 1
    storage.close()
