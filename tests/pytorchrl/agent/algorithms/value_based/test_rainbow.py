"""Rainbow is categorical double DQN, explores by the noise of its network, and has the paper's hyper-parameters."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.layers.linear_layers import NoisyLinear
from tests.support.by_hand import envs_with, exploring
from tests.support.value_learning import batch_of_windows, linear_learner


def noisy(**hyper_parameters: Any) -> prl.Rainbow:
    envs = envs_with(spaces.Discrete(3))
    torch.manual_seed(0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(6,), dueling=True, noisy=True)("cpu", envs)
    algorithm = prl.Rainbow.create_factory(start_steps=0, **hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    return algorithm


def test_its_gradients_are_those_of_categorical_double_dqn() -> None:
    settings = {"num_atoms": 5, "v_min": -2.0, "v_max": 2.0}
    rainbow = linear_learner(prl.Rainbow, explorer=prl.EpsilonGreedy(0.1), **settings)
    categorical = linear_learner(prl.CategoricalDQN, double=True, max_grad_norm=None, **settings)
    batch = batch_of_windows()
    (gradients, result), (expected, same) = (each.compute_gradients(batch) for each in (rainbow, categorical))
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], expected[name]) for name in expected)
    assert result.errors is not None
    assert same.errors is not None
    assert torch.equal(result.errors, same.errors)


def test_it_explores_with_noise_and_is_evaluated_without_noise() -> None:
    algorithm = noisy()
    obs, done = torch.randn(50, 3), torch.zeros(50, 1)
    collecting, evaluating = exploring(algorithm, 50), exploring(algorithm, 50, deterministic=True)
    collected = [algorithm.acting_step(obs, None, done, collecting).action for _ in range(20)]
    evaluated = [algorithm.acting_step(obs, None, done, evaluating).action for _ in range(3)]
    assert len({tuple(action.ravel().tolist()) for action in collected}) > 10
    assert torch.equal(evaluated[0], evaluated[1])
    assert torch.equal(evaluated[0], evaluated[2])


def test_a_network_without_noise_is_refused_unless_another_explorer_is_given() -> None:
    message = "Rainbow explores with noisy layers, but OffPolicyActor has none; give the actor noisy=True"
    with pytest.raises(ValueError, match=message):
        linear_learner(prl.Rainbow)
    algorithm = linear_learner(prl.Rainbow, explorer=prl.EpsilonGreedy(0.1))
    with pytest.raises(ValueError, match=message):
        algorithm.update_algorithm_parameter("explorer", None)
    assert algorithm.explorer == prl.EpsilonGreedy(0.1)
    with pytest.raises(TypeError, match="Rainbow: unknown hyper-parameter 'epsilon'"):
        prl.Rainbow.create_factory(epsilon=0.1)


def test_the_papers_preset_has_the_papers_hyper_parameters() -> None:
    preset = prl.Rainbow.paper(capacity=80_000, num_envs=8)
    algorithm = preset["algo_factory"].hyper_parameters
    expected = {
        "lr": 6.25e-5,
        "optimizer": prl.Adam(eps=1.5e-4),
        "gamma": 0.99,
        "start_steps": 80_000 // 4,
        "update_every": 4,
        "mini_batch_size": 32,
        "target_update_interval": 32_000 // 4 // 4,
        "polyak": 0.0,
        "max_grad_norm": 10.0,
        "double": True,
        "num_atoms": 51,
        "v_min": -10.0,
        "v_max": 10.0,
        "explorer": None,
    }
    assert {name: algorithm[name] for name in expected} == expected
    storage = preset["storage_factory"].hyper_parameters
    assert (storage["size"], storage["n_step"], storage["alpha"]) == (10_000, 3, 0.5)
    assert storage["beta"] == prl.LinearSchedule(0.4, 1.0)
    actor = preset["actor_factory"].hyper_parameters
    assert (actor["dueling"], actor["noisy"], actor["noisy_sigma"]) == (True, True, 0.5)


def test_the_papers_network_has_noisy_streams_on_the_convolutions() -> None:
    envs = envs_with(spaces.Discrete(3))
    envs.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    preset = prl.Rainbow.paper()
    algorithm = preset["algo_factory"]("cpu", preset["actor_factory"]("cpu", envs), envs)
    streams = algorithm.q.head.numbers
    layers = [streams.value_hidden, streams.advantage_hidden, streams.value, streams.advantage]
    assert all(isinstance(layer, NoisyLinear) for layer in layers)
    shapes = [(layer.in_features, layer.out_features) for layer in layers]
    assert shapes == [(3136, 512), (3136, 512), (512, 51), (512, 3 * 51)]


def test_epsilon_of_the_small_preset_falls_during_the_first_third_of_a_run() -> None:
    scheme = prl.Scheme(**prl.Rainbow.small(200), train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"))
    explorer = scheme.algorithm.explorer_of_policy
    assert isinstance(explorer, prl.EpsilonGreedy)
    assert any(isinstance(module, NoisyLinear) for module in scheme.algorithm.q.modules())
    shares = []
    for steps in (0, 1_000, 2_000, 6_000):
        scheme.set_progress(steps, 6_000)
        shares.append(scheme.algorithm.current(explorer.epsilon))
    assert shares == pytest.approx([1.0, 0.505, 0.01, 0.01])
    scheme.close()
