"""From a run's ``config.json`` back to its composition, which cannot run code that a file names."""

import copy
import json
from typing import Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.composition import differences, scheme_from_config
from tests.support.compositions import SCHEMES, dqn_scheme
from tests.support.toys import Counter


def through_json(scheme: prl.Scheme) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(scheme.config))
    return config


@pytest.mark.parametrize("name", SCHEMES)
def test_a_composition_comes_back_from_plain_data(name: str) -> None:
    config = through_json(SCHEMES[name]())
    scheme = scheme_from_config(config)
    assert through_json(scheme) == config
    assert not differences(scheme.config, config)


def test_a_difference_is_named_by_its_place_and_both_values() -> None:
    here, there = through_json(dqn_scheme()), through_json(dqn_scheme(size=151))
    assert differences(here, there) == ["storage.size: 150 here, 151 in the checkpoint"]
    assert differences(here, here) == []


@pytest.mark.parametrize("name", ["os.system", "PolicyGradient", "Component"])
def test_a_class_that_is_no_component_is_refused(name: str) -> None:
    config = through_json(dqn_scheme())
    config["algorithm"]["name"] = name
    with pytest.raises(prl.CompositionError, match=f"the class {name}, which is not defined here; make the scheme"):
        scheme_from_config(config)


def test_a_function_has_no_plain_form_and_the_way_out_is_said() -> None:
    config = through_json(dqn_scheme(envs=prl.VecEnv.create_factory(Counter)))
    with pytest.raises(prl.CompositionError, match=r"the function .*Counter; make the scheme in a script"):
        scheme_from_config(config)


@pytest.mark.parametrize("part", ["train_envs", "test_envs"])
def test_an_environment_id_that_would_import_a_module_is_refused(part: str) -> None:
    config = through_json(dqn_scheme())
    config[part] = copy.deepcopy(config["train_envs"])
    config[part]["hyper_parameters"]["env"] = "evil:CartPole-v1"
    with pytest.raises(prl.CompositionError, match=r"'evil:CartPole-v1' would import a module named by a file"):
        scheme_from_config(config)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device that the test needs to lack")
def test_a_device_that_this_machine_lacks_is_named() -> None:
    config = through_json(dqn_scheme()) | {"device": "cuda"}
    with pytest.raises(prl.CompositionError, match="the run goes on where it was begun, on cuda: device"):
        scheme_from_config(config)


def test_a_gymnasium_id_that_does_not_exist_is_refused_when_the_factory_is_made() -> None:
    with pytest.raises((gym.error.Error, ValueError), match="CartPoleX"):
        prl.VecEnv.create_factory("CartPoleX-v1")
