"""A device that is not there is named in a line."""

from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.device import DeviceError, find_device


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


def test_a_gpu_that_is_not_there_is_refused_where_the_actor_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 0)
    envs = SimpleNamespace(observation_space=spaces.Discrete(2), action_space=spaces.Discrete(2))
    with pytest.raises(DeviceError, match=r'device "cuda" is not available: torch finds no GPU') as error:
        prl.OffPolicyActor.create_factory()("cuda", envs)
    assert "\n" not in str(error.value)


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match=r'torch .* was built without CUDA; take device="cpu", or "auto"'):
        find_device("cuda")


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus, device in ((1, "cuda"), (0, "cpu")):
        pretend(monkeypatch, gpus)
        assert find_device("auto") == torch.device(device)


def test_a_gpu_of_a_number_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 2)
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceError, match='device "cuda:2" is not available: torch finds 2 GPUs, numbered from 0'):
        find_device(torch.device("cuda:2"))


def test_a_name_of_no_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="device 'gpu' is not a torch device; choose \"auto\""):
        find_device("gpu")
