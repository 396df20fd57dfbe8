"""An unavailable device is refused with a one-line error that names it."""

from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.device import DeviceError, find_device


def simulate_gpus(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


def test_an_unavailable_gpu_is_refused_when_the_actor_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch, 0)
    envs = SimpleNamespace(observation_space=spaces.Discrete(2), action_space=spaces.Discrete(2))
    with pytest.raises(DeviceError, match=r'device "cuda" is not available: torch finds no GPU') as error:
        prl.OffPolicyActor.create_factory()("cuda", envs)
    assert "\n" not in str(error.value)


def test_cuda_is_refused_if_torch_was_built_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match=r'torch .* was built without CUDA; take device="cpu", or "auto"'):
        find_device("cuda")


def test_auto_selects_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, device in ((1, "cuda"), (0, "cpu")):
        simulate_gpus(monkeypatch, gpus)
        assert find_device("auto") == torch.device(device)


def test_a_gpu_index_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch, 2)
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceError, match='device "cuda:2" is not available: torch finds 2 GPUs, numbered from 0'):
        find_device(torch.device("cuda:2"))


def test_an_unknown_device_name_is_refused() -> None:
    with pytest.raises(DeviceError, match="device 'gpu' is not a torch device; choose \"auto\""):
        find_device("gpu")
