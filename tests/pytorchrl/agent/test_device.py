"""A device that is not there is named in a line."""

from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.device import resolve_device


def test_a_gpu_that_is_not_there_is_refused_where_the_actor_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    envs = SimpleNamespace(observation_space=spaces.Discrete(2), action_space=spaces.Discrete(2))
    with pytest.raises(
        ValueError, match=r"device 'cuda': torch .* finds no CUDA device here; device=\"auto\""
    ) as error:
        prl.OffPolicyActor.create_factory()("cuda", envs)
    assert "\n" not in str(error.value)


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda here=available: here)
        assert resolve_device("auto") == torch.device(device)


def test_a_gpu_of_a_number_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match=r"device 'cuda:2': torch .* finds 2 CUDA devices here"):
        resolve_device(torch.device("cuda:2"))


def test_a_name_of_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r'device must be "auto", "cpu", "cuda" .* got \'gpu\''):
        resolve_device("gpu")
