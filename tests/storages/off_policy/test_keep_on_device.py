"""With ``keep_on_device``, batches equal, bit for bit, those of a storage that keeps its observations on the CPU.

These tests use the CPU as the device: the code is the same as for a GPU, except for the streams of the GPU.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Sequences, Storage
from storages.core.device import device_cache as on_device
from storages.transition import ACT, DONE, DONE2, EPISODE, ERRORS, INDICES, MASK, OBS, OBS2, REW, TRUNC2, WEIGHTS
from tests.storages.off_policy.test_her_buffer import GoalStream, envs
from tests.support.model import ALGORITHM, KINDS, Stream, environments, equal, through_a_file
from tests.support.profiles import examples

# Their rewards are random numbers, not those of a reward function.
pytestmark = pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")


SIZE = 14
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY: dict[str, Any] = {"eta": 0.999, "cmin": 6}
WINDOWS = [
    None,
    Sequences(4),
    Sequences(4, burn_in=2, overlap=2),
    Episodes(),
    Episodes(longest=4, whole=False),
    Episodes(packed=True),
    Episodes(max_steps=4, whole=False),
]
WAYS: dict[str, Callable[..., Any]] = {
    "plain": lambda **kwargs: ReplayBuffer.create_factory(**kwargs),
    "n-step": lambda **kwargs: NStepReplayBuffer.create_factory(n_step=3, **kwargs),
    "priority": lambda **kwargs: PERBuffer.create_factory(n_step=2, **PRIORITIES, **kwargs),
    "priority and recency": lambda **kwargs: EREBuffer.create_factory(n_step=3, **PRIORITIES, **RECENCY, **kwargs),
}


def made(way: str, envs: Any = None, size: int = SIZE, **hyper_parameters: Any) -> Storage:
    storage: Storage = WAYS[way](size=size, **hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(0)
    return storage


def assert_same_batches(one: Storage, other: Storage, updates: int = 3) -> None:
    for batches in zip(one.generate_batches(updates, 9), other.generate_batches(updates, 9), strict=True):
        assert equal(*batches)
        for storage, batch in zip((one, other), batches, strict=True):
            errors = batch[WEIGHTS] * (1 + batch[INDICES] % 5)
            if MASK in batch:
                errors = errors * batch[MASK]
            elif EPISODE in batch:
                errors = errors[batch[EPISODE][:, 0]]
            storage.after_gradients(batch, {ERRORS: errors})


@settings(max_examples=examples(60), deadline=None)
@given(
    way=st.sampled_from(sorted(WAYS)),
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 3),
    recurrent=st.booleans(),
    prefetch=st.sampled_from([0, 2]),
    sequences=st.sampled_from(WINDOWS),
    inserted=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    seed=st.integers(0, 5),
)
def test_keep_on_device_gives_the_same_batches_as_a_storage_on_the_cpu(
    way: str,
    kind: str,
    num_envs: int,
    recurrent: bool,
    prefetch: int,
    sequences: Any,
    inserted: list[int],
    seed: int,
) -> None:
    envs = environments(kind, num_envs)
    on_cpu, on_device = (
        made(way, envs, sequences=sequences, prefetch=prefetch, keep_on_device=keep) for keep in (False, True)
    )
    stream = Stream(num_envs, kind, recurrent, np.random.default_rng(seed))
    for steps in inserted:
        for _ in range(steps + 1):
            sample = stream.step()
            on_cpu.insert_transition(sample)
            on_device.insert_transition(sample)
        assert_same_batches(on_cpu, on_device)


@pytest.mark.parametrize("kind", KINDS)
def test_keep_on_device_gives_equal_batches_after_resets_copies_and_loads(kind: str) -> None:
    envs = environments(kind, 2)
    storages = [made("priority and recency", envs, keep_on_device=keep) for keep in (False, True)]
    stream = Stream(2, kind, True, np.random.default_rng(1))

    def insert(steps: int) -> None:
        for _ in range(steps):
            sample = stream.step()
            for storage in storages:
                storage.insert_transition(sample)

    insert(20)
    assert_same_batches(*storages)
    for storage in storages:
        storage.insert_single_tensor_slice(REW, np.full((5, 2, 1), 3, np.float32))
        storage.insert_data_slice(storage.get_data_slice(2, 6))
    assert_same_batches(*storages)
    for storage in storages:
        storage.reset()
    insert(5)
    assert_same_batches(*storages)
    insert(30)
    storages = [copy.deepcopy(storage) for storage in storages]
    insert(1)
    assert_same_batches(*storages)
    for place, keep in enumerate((False, True)):
        loaded = made("priority and recency", envs, keep_on_device=keep)
        loaded.load_state_dict(through_a_file(storages[1 - place].state_dict()))
        storages[place] = loaded
    insert(1)
    assert_same_batches(*storages)
    older = storages[0].state_dict()
    insert(8)
    for storage in storages:
        storage.load_state_dict(older)
    assert_same_batches(*storages)
    insert(3)
    assert_same_batches(*storages)


def test_keep_on_device_grows_its_memory_for_many_ends_of_episodes() -> None:
    storages = [made("n-step", size=300, keep_on_device=keep) for keep in (False, True)]
    random = np.random.default_rng(0)
    observation = random.normal(size=(1, 3)).astype(np.float32)
    ended, sizes = np.ones((1, 1), bool), set()
    for step in range(700):
        following = random.normal(size=(1, 3)).astype(np.float32)
        ends = random.random((1, 1)) < (0.02 if step < 300 else 0.5)
        sample = {
            OBS: observation,
            DONE: ended,
            ACT: np.zeros((1, 1), np.float32),
            REW: np.ones((1, 1), np.float32),
            OBS2: following,
            DONE2: ends,
        }
        ended = ends
        observation = random.normal(size=(1, 3)).astype(np.float32) if ends[0, 0] else following
        for storage in storages:
            storage.insert_transition(sample)
        if step % 40 == 0:
            assert_same_batches(*storages)
            sizes.add(storages[1].nbytes)
    assert len(sizes) > 1


@pytest.mark.parametrize("sequences", [None, Sequences(4, burn_in=2), Episodes(packed=True)])
def test_keep_on_device_gives_the_same_batches_with_hindsight(sequences: Any) -> None:
    storages = [
        HERBuffer.create_factory(SIZE, n_step=2, sequences=sequences, prefetch=1, keep_on_device=keep, **PRIORITIES)(
            "cpu", None, ALGORITHM, envs(2)
        )
        for keep in (False, True)
    ]
    for storage in storages:
        storage.seed(0)
    stream = GoalStream(2, np.random.default_rng(0), ends=0.15)
    for step in range(40):
        sample = stream.step()
        for storage in storages:
            storage.insert_transition(sample)
        if step % 5 == 4:
            assert_same_batches(*storages)


def test_keep_on_device_refuses_a_her_function() -> None:
    with pytest.raises(ValueError, match="HERBuffer: keep_on_device must be False with a her_function"):
        HERBuffer.create_factory(SIZE, lambda *arguments: arguments[:5], keep_on_device=True)


def test_nbytes_includes_the_memory_of_the_device() -> None:
    on_cpu, kept = (made("plain", keep_on_device=keep) for keep in (False, True))
    stream = Stream(2, "image", False, np.random.default_rng(0))
    sample = stream.step()
    for storage in (on_cpu, kept):
        storage.insert_transition(sample)
    observation_bytes, rows = 4, (SIZE + 1) * 2
    assert kept.nbytes - on_cpu.nbytes >= rows * observation_bytes
    assert kept.nbytes - on_cpu.nbytes <= (rows + 3) * observation_bytes


def test_too_little_device_memory_is_refused_with_byte_counts_and_stores_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, stream = made("plain", keep_on_device=True), Stream(2, "double", False, np.random.default_rng(0))
    sample = stream.step()
    with monkeypatch.context() as patched:
        patched.setattr(on_device, "free_bytes", lambda device: 1000)
        with pytest.raises(on_device.DeviceMemoryError, match=r"needs 1,024 bytes .* on cpu, where 1,000 are free"):
            storage.insert_transition(sample)
        assert len(storage) == 0
    storage.insert_transition(sample)
    assert len(storage) == 2
    (batch,) = storage.generate_batches(1, 4)
    assert {tuple(row.flatten().tolist()) for row in batch[OBS]} <= {tuple(s.ravel().tolist()) for s in sample[OBS]}


def test_a_drawn_batch_does_not_change_after_later_insertions() -> None:
    stream = Stream(2, "frames", False, np.random.default_rng(0))
    storage = made("plain", environments("frames", 2), keep_on_device=True)
    for _ in range(5):
        storage.insert_transition(stream.step())
    (batch,) = storage.generate_batches(1, 9)
    then = {key: torch.clone(value) for key, value in batch.items()}
    for _ in range(20):
        storage.insert_transition(stream.step())
    list(storage.generate_batches(2, 9))
    assert equal(batch, then)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64, np.float16, np.bool_, np.int8])
@pytest.mark.parametrize("shape", [(0,), (2,), (2, 0)])
def test_keep_on_device_accepts_observations_of_any_dtype_and_of_size_zero(dtype: Any, shape: Any) -> None:
    storages = [made("plain", keep_on_device=keep) for keep in (False, True)]
    random, following = np.random.default_rng(0), None
    for t in range(40):
        ends = np.array([[t % 5 == 4]])
        obs = following if following is not None and t % 5 else random.integers(0, 250, (1, *shape)).astype(dtype)
        following = random.integers(0, 250, (1, *shape)).astype(dtype)
        no, one = np.zeros((1, 1), bool), np.ones((1, 1), np.float32)
        sample = {
            OBS: {"a": obs, "b": one},
            OBS2: {"a": following, "b": one},
            DONE: np.array([[t % 5 == 0]]),
            ACT: one,
            REW: one,
            DONE2: ends,
            TRUNC2: no,
        }
        for storage in storages:
            storage.insert_transition(sample)
        if t % 3 == 0:
            assert_same_batches(*storages)
