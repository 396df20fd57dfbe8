"""Half-precision rewards, values, log probabilities and errors give the results of their single-precision values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    Episodes,
    GAEBuffer,
    HERBuffer,
    NStepReplayBuffer,
    PERBuffer,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    SampleError,
    Sequences,
    VanillaOnPolicyBuffer,
    VTraceBuffer,
)
from storages.transition import ACT, ADV, IREW, LOGP, OBS, OBS2, RET, REW, VAL
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, Sample, Stream, equal, map_leaves, replay_buffer, unchanged

HALVES: dict[str, Callable[[Any], Any]] = {
    "float16 array": lambda array: array.astype(np.float16),
    "float16 tensor": lambda array: torch.from_numpy(array).half(),
    "bfloat16 tensor": lambda array: torch.from_numpy(array).bfloat16(),
}
half_precision = pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)


def single(value: Any) -> Any:
    """The single-precision array of a half-precision array or tensor."""
    return value.astype(np.float32) if isinstance(value, np.ndarray) else value.float().numpy()


REPLAY: dict[str, Any] = {
    "one step": ReplayBuffer.create_factory(size=12),
    "three steps": NStepReplayBuffer.create_factory(size=12, n_step=3),
    "sequences": NStepReplayBuffer.create_factory(size=12, n_step=2, sequences=Sequences(3, burn_in=1)),
    "episodes": ReplayBuffer.create_factory(size=12, sequences=Episodes(whole=False)),
    "packed episodes": ReplayBuffer.create_factory(size=12, sequences=Episodes(whole=False, packed=True)),
    "hindsight": HERBuffer.create_factory(size=12, n_step=2, her_function=unchanged, her_ratio=0.5),
    "priorities": PERBuffer.create_factory(size=12, n_step=2, alpha=0.5),
}


def two_alike(make: Callable[[], Any], half: Callable[[Any], Any], keys: tuple[str, ...], steps: int) -> list[Any]:
    """A storage with some fields in half precision, and one with the same numbers in single precision."""
    storages = make(), make()
    stream = Stream(2, "vector", True, np.random.default_rng(5))
    for _ in range(steps):
        sample = stream.step() | {
            key: stream.generator.normal(size=(2, 1)).astype(np.float32) for key in (IREW, VAL, LOGP)
        }
        halves = {key: half(sample[key]) for key in keys}
        storages[0].insert_transition(sample | halves)
        storages[1].insert_transition(sample | {key: single(value) for key, value in halves.items()})
    return list(storages)


@half_precision
@pytest.mark.parametrize("name", REPLAY)
def test_rewards_of_half_precision_are_summed_in_single_precision(name: str, half: Callable[[Any], Any]) -> None:
    def make() -> Any:
        storage = REPLAY[name]("cpu", None, ALGORITHM, None)
        storage.seed(3)
        return storage

    halves, singles = two_alike(make, half, (REW, IREW), 30)
    for _ in range(5):
        ours, theirs = (next(storage.generate_batches(1, 8)) for storage in (halves, singles))
        assert ours[REW].dtype == torch.float32
        assert_equal(ours, theirs)


class Actor:
    """Returns values and log probabilities in a given precision, as under autocast."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        return obs[..., :1].to(self.dtype)

    def evaluate_actions(self, obs: Any, rhs: Any, done: Any, action: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return -obs[..., 1:2].abs().to(self.dtype), obs[..., :1].to(self.dtype)


@half_precision
@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer, VTraceBuffer])
def test_half_precision_values_give_the_same_advantages_as_single_precision(
    cls: Any, half: Callable[[Any], Any]
) -> None:
    halves, singles = two_alike(
        lambda: cls.create_factory(size=15)("cpu", Actor(torch.float32), ALGORITHM, None), half, (REW, VAL, LOGP), 15
    )
    for storage in (halves, singles):
        storage.seed(3)
        storage.before_gradients()
    ours, theirs = halves.get_all_buffer_data(), singles.get_all_buffer_data()
    assert {ours[key].dtype for key in (REW, VAL, LOGP, RET, ADV)} == {torch.float32}
    assert_equal(ours, theirs)


def test_half_precision_rewards_are_accepted_after_single_precision_and_in_slices() -> None:
    storage: Any = NStepReplayBuffer.create_factory(size=12, n_step=2)("cpu", None, ALGORITHM, None)
    stream = Stream(2, "vector", False, np.random.default_rng(5))
    for half in (lambda array: array, *HALVES.values()):
        sample = stream.step()
        storage.insert_transition(sample | {REW: half(sample[REW])})
    data = storage.get_all_buffer_data()
    storage.insert_data_slice(data | {REW: data[REW].bfloat16()})
    for half in HALVES.values():
        storage.insert_single_tensor_slice(REW, half(np.full((2, 2, 1), 0.25, np.float32)), 1)
    assert storage.get_all_buffer_data()[REW][1:3].tolist() == [[[0.25]] * 2] * 2


@pytest.mark.quick_share(0.5)
@half_precision
@pytest.mark.parametrize("episodic", [False, True])
def test_half_precision_rewards_are_restored_from_a_directory(
    half: Callable[[Any], Any], episodic: bool, tmp_path: Path
) -> None:
    number = iter("ab")

    def make(name: str | None = None) -> Any:
        place = str(tmp_path / (name or next(number)))
        factory = (
            PersistentEpisodicBuffer.create_factory(size=40, directory=place, n_step=2)
            if episodic
            else NStepReplayBuffer.create_factory(size=40, directory=place, n_step=2)
        )
        storage: Any = factory("cpu", None, ALGORITHM, None)
        storage.seed(3)
        return storage

    for storage in two_alike(make, half, (REW,), 30):
        storage.close()
    opened = [make(name) for name in "ab"]
    ours, theirs = (next(storage.generate_batches(1, 16)) for storage in opened)
    assert_equal(ours, theirs)
    for storage in opened:
        storage.close()


def test_other_fields_keep_float16() -> None:
    storage: Any = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, None)
    sample = Stream(2, "vector", False, np.random.default_rng(5)).step()
    storage.insert_transition(sample | {ACT: np.zeros((2, 1), np.float16)})
    assert next(storage.generate_batches(1, 2))[ACT].dtype == torch.float16


def test_bfloat16_in_other_fields_is_refused_with_a_remedy() -> None:
    storage: Any = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, None)
    sample: Sample = Stream(2, "vector", False, np.random.default_rng(5)).step()
    observed = torch.from_numpy(sample[OBS])
    with pytest.raises(SampleError, match=r"Observation must have a dtype .*bfloat16; convert it with \.float\(\)"):
        storage.insert_transition(sample | {OBS: observed.bfloat16()})
    assert len(storage) == 0


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_float16_observations_keep_their_dtype_and_values_over_many_steps(kind: str) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(4))
    halves, singles = (replay_buffer(size=300) for _ in range(2))
    for _ in range(260):
        step = stream.step()
        half = step | {key: step[key].astype(np.float16) for key in (OBS, OBS2)}
        halves.insert_transition(map_leaves(half, torch.from_numpy) if kind == "tensor" else half)
        singles.insert_transition(half | {key: half[key].astype(np.float32) for key in (OBS, OBS2)})
    stored, others = halves.get_all_buffer_data(), singles.get_all_buffer_data()
    assert stored[OBS].dtype == torch.float16
    assert equal({key: stored[key].float() for key in (OBS, OBS2)}, {key: others[key] for key in (OBS, OBS2)})
    for wrong in (np.int16, np.float32):
        with pytest.raises(SampleError, match="Observation had dtype float16 in the first sample"):
            halves.insert_transition(half | {OBS: half[OBS].astype(wrong)})
