"""Algorithms that are called as in other libraries say what to write, and what they say can be written."""

import copy
import inspect
import re
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from docs.generated_parts import exported

NETWORK = torch.nn.Linear(4, 2)
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "stable-baselines3": (("MlpPolicy", "Acrobot-v1"), {"verbose": 1}),
    "stable-baselines3 by keywords": ((), {"policy": "MlpPolicy", "env": "Acrobot-v1", "device": "cpu"}),
    "PFRL": ((NETWORK, torch.optim.SGD(NETWORK.parameters(), 0.1), [], 0.99), {"replay_start_size": 100}),
    "PFRL with three": ((NETWORK, None, []), {}),
    "Tianshou": ((), {"policy": NETWORK, "optim": None}),
    "skrl": ((), {"models": {"policy": NETWORK}, "memory": None, "cfg": {}, "device": "cuda"}),
    "nnabla-rl": ((gym.make("Acrobot-v1"),), {"config": None}),
    "d3rlpy": ((object(), "cpu:0", False), {}),
}


@pytest.mark.parametrize("library", CALLS)
@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_the_call_of_another_library_is_answered_in_one_line(name: str, library: str) -> None:
    args, kwargs = CALLS[library]
    with pytest.raises(TypeError) as refused:
        getattr(prl, name)(*args, **kwargs)
    text = str(refused.value)
    assert text.startswith(f"{name} is not called: ")
    assert "\n" not in text
    # An environment that was made shows that SAC does not act in it; the name of one does not.
    acts = library.startswith("stable") or (library == "nnabla-rl" and name != "SAC")
    assert ("Acrobot-v1" in text) == acts
    assert ("SAC needs a Box action space" in text) == (library == "nnabla-rl" and name == "SAC")
    assert ("the actor makes the networks" in text) == any(
        isinstance(one, (torch.nn.Module, dict)) for one in (*args, *kwargs.values())
    )


def test_an_environment_that_is_given_is_named_by_its_id() -> None:
    with pytest.raises(TypeError, match=re.escape('prl.compose("PPO", "Acrobot-v1")')):
        prl.PPO("MlpPolicy", gym.make("Acrobot-v1"))  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize("name", ["A2C", "DDPG", "DQN", "PPO", "QRDQN", "REINFORCE", "SAC", "TD3", "TQC", "TRPO"])
def test_the_scheme_that_an_answer_composes_can_be_made(name: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(prl, name)(NETWORK, None)
    composed = re.search(r"prl\.compose\(.*?\)", str(refused.value))
    assert composed is not None
    with eval(composed[0], {"prl": prl}) as scheme:
        assert type(scheme.algorithm).__name__ == name


def test_every_algorithm_answers() -> None:
    for name, cls in exported(prl.Algorithm).items():
        with pytest.raises(TypeError, match=f"^{name} is not called: "):
            cls(NETWORK, None)  # type: ignore[call-arg, arg-type]


class Noted(prl.DQN):
    """Takes one argument more."""

    def __init__(self, device: Any, actor: Any, envs: Any, *, note: str = "", **others: Any) -> None:
        super().__init__(device, actor, envs)
        self.note = note


ENVS = SimpleNamespace(observation_space=spaces.Box(-1, 1, (3,), np.float32), action_space=spaces.Discrete(2))


def actor() -> Any:
    return prl.OffPolicyActor.create_factory(hidden_sizes=(4,))("cpu", ENVS)


def test_a_device_an_actor_and_environments_make_an_algorithm_and_so_does_a_copy() -> None:
    envs: Any = ENVS
    for device in ("cpu", "auto", torch.device("cpu")):
        made = prl.DQN(device, actor(), envs)
        assert type(copy.copy(made)) is prl.DQN
    assert type(prl.DQN(device="cpu", actor=actor(), envs=envs)) is prl.DQN
    with pytest.raises(prl.DeviceError):
        prl.DQN("cuda:99", actor(), envs)


def test_an_algorithm_of_ones_own_with_further_arguments_is_made_as_ever() -> None:
    assert Noted("cpu", actor(), ENVS, note="mine", more=1).note == "mine"
    assert inspect.signature(prl.PPO).parameters.keys() == {"device", "actor", "envs"}
    assert inspect.signature(Noted).parameters.keys() == {"device", "actor", "envs", "note", "others"}
