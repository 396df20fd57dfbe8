"""On a GPU, batches equal those of a storage on the CPU, for every kind of transfer, also while the GPU is busy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, EREBuffer, HERBuffer, Sequences, Storage
from storages.core.device.device_cache import DeviceMemoryError, free_bytes
from storages.transition import ERRORS, INDICES, MASK, OBS, REW, RHS, WEIGHTS
from tests.storages.off_policy.test_late_errors import with_late_errors
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, KINDS, Stream, environments, equal, map_leaves

pytestmark = pytest.mark.gpu

PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0, "cmin": 6}
WAYS: list[dict[str, Any]] = [
    {"prefetch": 0, "keep_on_device": False},
    {"prefetch": 2, "keep_on_device": False},
    {"prefetch": 0, "keep_on_device": True},
    {"prefetch": 2, "keep_on_device": True},
]


def pair(way: dict[str, Any], envs: Any = None, **hyper_parameters: Any) -> tuple[Storage, Storage]:
    """Equal storages, one on the CPU and one on the GPU."""
    storages = (
        EREBuffer.create_factory(40, n_step=3, eta=0.999, **PRIORITIES, **hyper_parameters, **where)(
            device, None, ALGORITHM, envs
        )
        for device, where in (("cpu", {"prefetch": way["prefetch"]}), ("cuda", way))
    )
    on_cpu, on_gpu = storages
    # Errors take effect on the CPU as late as on the GPU.
    with_late_errors(on_cpu)
    on_cpu.seed(0)
    on_gpu.seed(0)
    return on_cpu, on_gpu


def keep_busy() -> None:
    """Gives the consumer's stream so much work that a missing synchronisation changes the results."""
    matrix = torch.ones(2048, 2048, device="cuda")
    for _ in range(10):
        matrix = matrix @ matrix


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sequences", [None, Sequences(4, burn_in=2)])
def test_batches_on_the_gpu_equal_those_on_the_cpu(way: dict[str, Any], kind: str, sequences: Any) -> None:
    on_cpu, on_gpu = pair(way, environments(kind, 2), sequences=sequences)
    stream = Stream(2, kind, True, np.random.default_rng(0))
    expected, found = [], []
    for phase in range(6):
        for _ in range(15):
            sample = stream.step()
            on_cpu.insert_transition(sample)
            on_gpu.insert_transition(sample)
        for one, two in zip(on_cpu.generate_batches(8, 32), on_gpu.generate_batches(8, 32), strict=True):
            keep_busy()
            expected.append(one)
            # Read on the consumer's stream, and returned to the allocator while that stream is still busy.
            found.append(map_leaves(two, torch.clone))
            errors = one[WEIGHTS] * (1 + one[INDICES] % (5 + phase))
            errors = errors * one[MASK] if MASK in one else errors
            on_cpu.after_gradients(one, {ERRORS: errors})
            on_gpu.after_gradients(two, {ERRORS: errors.to("cuda")})
            del two
    assert all(equal(one, map_leaves(two, torch.Tensor.cpu)) for one, two in zip(expected, found, strict=True))


# Rewards are zeros, not those of the reward function.
@pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_relabelled_batches_on_the_gpu_equal_those_on_the_cpu(way: dict[str, Any]) -> None:
    envs = SimpleNamespace(num_envs=1, compute_reward=lambda achieved, desired, info: achieved[:, 0] - desired[:, 0])
    storages = [
        HERBuffer.create_factory(40, n_step=2, **where)(device, None, ALGORITHM, envs)
        for device, where in (("cpu", {}), ("cuda", way))
    ]
    random = np.random.default_rng(0)
    for storage in storages:
        storage.seed(0)
    for _ in range(60):
        obs, obs2 = (
            {name: random.normal(size=(1, 2)).astype(np.float32) for name in ("achieved_goal", "desired_goal")}
            for _ in range(2)
        )
        flags = {key: random.random((1, 1)) < 0.2 for key in ("Done", "NextDone", "NextTruncated")}
        rest = {"Action": np.zeros((1, 1)), "Reward": np.zeros((1, 1), np.float32)}
        for storage in storages:
            storage.insert_transition({OBS: obs, "NextObservation": obs2, **flags, **rest})
    for one, two in zip(*(storage.generate_batches(5, 64) for storage in storages), strict=True):
        assert equal(one, map_leaves(two, torch.Tensor.cpu))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sequences", [None, Sequences(4), Episodes(), Episodes(packed=True)])
def test_errors_are_copied_completely_while_the_gpu_is_busy(way: dict[str, Any], sequences: Any) -> None:
    on_cpu, on_gpu = pair(way, sequences=sequences)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for phase in range(4):
        for _ in range(15):
            sample = stream.step()
            on_cpu.insert_transition(sample)
            on_gpu.insert_transition(sample)
        for one, two in zip(on_cpu.generate_batches(8, 32), on_gpu.generate_batches(8, 32), strict=True):
            on_cpu.after_gradients(one, {ERRORS: one[REW] * (phase + 1)})
            keep_busy()
            errors = two[REW] * (phase + 1)
            on_gpu.after_gradients(two, {ERRORS: errors})
            # Later work on the device's stream runs after the copy.
            errors.fill_(float("nan"))
        assert_equal(on_cpu.state_dict(), on_gpu.state_dict())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sequences", [Sequences(4, burn_in=2, across_episodes=True), Episodes(max_steps=4)])
def test_newer_recurrent_states_on_the_gpu_are_those_on_the_cpu(way: dict[str, Any], sequences: Any) -> None:
    on_cpu, on_gpu = pair(way, sequences=sequences)
    stream, random = Stream(2, "vector", True, np.random.default_rng(0)), torch.Generator().manual_seed(0)
    for _ in range(6):
        for _ in range(15):
            sample = stream.step()
            on_cpu.insert_transition(sample)
            on_gpu.insert_transition(sample)
        for one, two in zip(on_cpu.generate_batches(8, 32), on_gpu.generate_batches(8, 32), strict=True):
            keep_busy()
            assert equal(one, map_leaves(two, torch.Tensor.cpu))
            states, errors = torch.rand(*one[MASK].shape[:-1], 4, generator=random), one[MASK] * one[REW].abs()
            on_cpu.after_gradients(one, {RHS: states, ERRORS: errors})
            on_gpu.after_gradients(two, {RHS: states.to("cuda"), ERRORS: errors.to("cuda")})
        assert torch.equal(on_cpu.get_all_buffer_data()[RHS], on_gpu.get_all_buffer_data()[RHS].cpu())


def test_after_gradients_does_not_synchronize_with_the_gpu() -> None:
    _, on_gpu = pair(WAYS[0])
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(40):
        on_gpu.insert_transition(stream.step())
    batches = on_gpu.generate_batches(3, 32)
    for _ in range(3):
        batch = next(batches)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            on_gpu.after_gradients(batch, {ERRORS: batch[REW].abs()})
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_batches_may_be_consumed_on_another_cuda_stream() -> None:
    on_cpu, on_gpu = pair(WAYS[3])
    stream = Stream(2, "image", False, np.random.default_rng(0))
    for _ in range(60):
        sample = stream.step()
        on_cpu.insert_transition(sample)
        on_gpu.insert_transition(sample)
    with torch.cuda.stream(torch.cuda.Stream()):
        for one, two in zip(on_cpu.generate_batches(6, 64), on_gpu.generate_batches(6, 64), strict=True):
            keep_busy()
            assert equal(one, map_leaves(two, torch.Tensor.cpu))


def test_too_little_gpu_memory_is_refused_and_free_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Stream(2, "image", False, np.random.default_rng(0)).step()
    _, on_gpu = pair(WAYS[2])
    free = free_bytes(torch.device("cuda"))
    assert free is not None
    assert free > 0
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    with pytest.raises(DeviceMemoryError, match=r"on cuda:0, where 0 are free"):
        on_gpu.insert_transition(sample)
    assert len(on_gpu) == 0
