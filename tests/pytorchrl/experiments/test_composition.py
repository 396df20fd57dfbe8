"""A composition is restored from a run's ``config.json``, without running code that the file names."""

import copy
import functools
import json
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.runs.composition import differences, scheme_from_config
from pytorchrl.experiments.runs.continuation import classes_of_the_script, own_parts
from storages.component.hyper_parameters import Within
from storages.component.setting import Setting
from tests.support.compositions import SCHEMES, dqn_scheme
from tests.support.toys import Counter


def through_json(scheme: prl.Scheme) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(scheme.config))
    return config


@pytest.mark.parametrize("name", SCHEMES)
def test_a_composition_is_restored_from_plain_data(name: str) -> None:
    config = through_json(SCHEMES[name]())
    scheme = scheme_from_config(config)
    assert through_json(scheme) == config
    assert not differences(scheme.config, config)


def test_a_difference_is_reported_by_its_path_and_both_values() -> None:
    here, there = through_json(dqn_scheme()), through_json(dqn_scheme(size=151))
    assert differences(here, there) == ["storage.size: 150 here, 151 in the checkpoint"]
    assert differences(here, here) == []


@pytest.mark.parametrize("name", ["os.system", "PolicyGradient", "Component"])
def test_a_class_that_is_no_component_is_refused(name: str) -> None:
    config = through_json(dqn_scheme())
    config["algorithm"]["name"] = name
    with pytest.raises(prl.CompositionError, match=f"the class {name}, which is not defined here; import the module"):
        scheme_from_config(config)


@pytest.mark.parametrize("env", [Counter, functools.partial(Counter, length=2)])
def test_a_function_in_a_configuration_is_refused_with_a_remedy(env: Any) -> None:
    config = through_json(dqn_scheme(envs=prl.VecEnv.create_factory(env)))
    with pytest.raises(
        prl.CompositionError,
        match=r"the class or function .*Counter; import the module .* or make the scheme in a script",
    ):
        scheme_from_config(config)


@pytest.mark.parametrize("part", ["train_envs", "test_envs"])
def test_an_environment_id_that_would_import_a_module_is_refused(part: str) -> None:
    config = through_json(dqn_scheme())
    config[part] = copy.deepcopy(config["train_envs"])
    config[part]["hyper_parameters"]["env"] = "evil:CartPole-v1"
    with pytest.raises(prl.CompositionError, match=r"'evil:CartPole-v1' would import a module named by a file"):
        scheme_from_config(config)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device that the test needs to lack")
def test_a_device_that_this_machine_lacks_is_refused_by_name() -> None:
    config = through_json(dqn_scheme()) | {"device": "cuda"}
    with pytest.raises(prl.CompositionError, match="the run is made on the device that it began on, cuda: device"):
        scheme_from_config(config)


def test_an_unknown_gymnasium_id_is_refused_when_the_factory_is_created() -> None:
    with pytest.raises((gym.error.Error, ValueError), match="CartPoleX"):
        prl.VecEnv.create_factory("CartPoleX-v1")


@dataclass(frozen=True)
class Noise(Setting):
    scales: tuple[float, ...] = (1.0,)
    rate: Annotated[float | prl.Schedule, Within(0, 1)] = 1.0


class Noisy(prl.DQN):
    noise: Noise = Noise()
    second: prl.Factory[prl.Storage] | None = None


def noisy_scheme(**hyper_parameters: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=Noisy.create_factory(**hyper_parameters),
        actor_factory=prl.OffPolicyActor.create_factory(),
        storage_factory=prl.ReplayBuffer.create_factory(size=50),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
    )


def test_settings_and_factories_as_hyper_parameters_are_restored_from_plain_data() -> None:
    second = prl.PERBuffer.create_factory(9, sequences=prl.Sequences(3), alpha=prl.LinearSchedule(0.0, 1.0))
    scheme = noisy_scheme(noise=Noise(scales=(1, 2), rate=prl.LinearSchedule(0.5, 0.1)), second=second)
    config = through_json(scheme)
    restored = scheme_from_config(config)
    assert restored.factories[0] == scheme.factories[0]
    assert restored.factories[0].hyper_parameters["second"] == second
    there = through_json(noisy_scheme(noise=Noise(rate=0.5), second=second))
    assert differences(config, there) == [
        "algorithm.noise.scales: [1.0, 2.0] here, [1.0] in the checkpoint",
        "algorithm.noise.rate.name: LinearSchedule here, nothing in the checkpoint",
        "algorithm.noise.rate.initial: 0.5 here, nothing in the checkpoint",
        "algorithm.noise.rate.final: 0.1 here, nothing in the checkpoint",
        "algorithm.noise.rate.fraction: 1.0 here, nothing in the checkpoint",
        "algorithm.noise.rate: nothing here, 0.5 in the checkpoint",
    ]


def test_a_value_outside_its_range_in_a_setting_of_a_file_is_refused() -> None:
    config = through_json(noisy_scheme())
    config["algorithm"]["hyper_parameters"]["noise"]["hyper_parameters"]["rate"] = 2
    with pytest.raises(ValueError, match=r"Noise: rate must lie in \[0, 1\], got 2"):
        scheme_from_config(config)


def test_classes_of_a_script_are_found_anywhere_in_the_composition() -> None:
    factories = noisy_scheme().factories
    assert classes_of_the_script(factories) == ["Noise", "Noisy"]
    assert {part.name for part in own_parts(factories)} == {"Noise", "Noisy"}
    config = through_json(noisy_scheme()) | {"own_classes": ["Noise", "Noisy"]}
    assert scheme_from_config(config).factories == factories
    with pytest.raises(prl.CompositionError, match="composed with the class Louder of a script"):
        scheme_from_config(config | {"own_classes": ["Louder"]})


def test_an_environment_id_that_imports_is_refused_in_other_hyper_parameters() -> None:
    config = through_json(noisy_scheme())
    envs = copy.deepcopy(config["train_envs"])
    envs["hyper_parameters"]["env"] = "evil:CartPole-v1"
    config["algorithm"]["hyper_parameters"]["second"] = {"name": "VecEnv", "hyper_parameters": {"env_kwargs": [envs]}}
    with pytest.raises(prl.CompositionError, match=r"'evil:CartPole-v1' would import a module named by a file"):
        scheme_from_config(config)
