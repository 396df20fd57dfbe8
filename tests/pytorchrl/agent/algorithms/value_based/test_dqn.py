"""DQN's update equals the one computed by hand, and its exploration follows its hyper-parameters."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import copies, envs_with, first_adam_step, layer_of, numpy, perturb, replayed
from tests.support.value_learning import batch_of_windows, check_scalar_update, linear_learner

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])


def linear_dqn(**hyper_parameters: Any) -> prl.DQN:
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.DQN.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    return algorithm


def weights_of(network: Any) -> Any:
    return layer_of(network.head.numbers)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_an_update_equals_the_one_computed_by_hand(double: bool, max_grad_norm: float | None) -> None:
    algorithm = linear_dqn(lr=0.01, double=double, max_grad_norm=max_grad_norm, target_update_interval=100)
    perturb(algorithm.q_target, 1)
    batch = replayed(ACTIONS)
    before = copies(batch)
    (w, b), (target_w, target_b) = weights_of(algorithm.q), weights_of(algorithm.q_target)
    obs, obs2 = numpy(batch[OBS]), numpy(batch[OBS2])
    rows = np.arange(len(ACTIONS))

    next_q = obs2 @ target_w.T + target_b
    chosen = (obs2 @ w.T + b).argmax(1) if double else next_q.argmax(1)
    target = numpy(batch[REW])[:, 0] + numpy(batch[DISCOUNT])[:, 0] * next_q[rows, chosen]
    error = (obs @ w.T + b)[rows, ACTIONS[:, 0]] - target
    slope = np.clip(error, -1, 1) * numpy(batch[WEIGHTS])[:, 0] / len(rows)
    gradient_w, gradient_b = np.zeros_like(w), np.zeros_like(b)
    for row, action in enumerate(ACTIONS[:, 0]):
        gradient_w[action] += slope[row] * obs[row]
        gradient_b[action] += slope[row]
    loss = (numpy(batch[WEIGHTS])[:, 0] * np.where(np.abs(error) < 1, error**2 / 2, np.abs(error) - 0.5)).mean()

    gradients, result = algorithm.compute_gradients(batch)
    info = result.info
    np.testing.assert_allclose(info["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(numpy(info[ERRORS])[:, 0], np.abs(error), rtol=1e-4, atol=1e-6)
    assert info[ERRORS].shape == (6, 1)
    np.testing.assert_allclose(numpy(gradients["q.head.numbers.layer.weight"]), gradient_w, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(numpy(gradients["q.head.numbers.layer.bias"]), gradient_b, rtol=1e-4, atol=1e-6)

    algorithm.update(batch)
    if max_grad_norm is not None:
        norm = np.sqrt((gradient_w**2).sum() + (gradient_b**2).sum())
        gradient_w, gradient_b = (g * min(1, max_grad_norm / norm) for g in (gradient_w, gradient_b))
    after_w, after_b = weights_of(algorithm.q)
    np.testing.assert_allclose(after_w, w + first_adam_step(gradient_w, 0.01), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after_b, b + first_adam_step(gradient_b, 0.01), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(weights_of(algorithm.q_target)[0], target_w)
    assert all(torch.equal(batch[key], before[key]) for key in before)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("threshold", [None, 0.3, 1.0])
def test_updates_from_shorter_windows_and_with_other_losses_equal_those_by_hand(
    threshold: float | None, double: bool
) -> None:
    algorithm = linear_learner(prl.DQN, huber_threshold=threshold, double=double)
    by_hand = check_scalar_update(
        algorithm, batch_of_windows(), lambda by_hand, row: by_hand.bootstrapped(row, double), threshold
    )
    ways = [[by_hand.bootstrapped(row, way) for row in by_hand.rows] for way in (False, True)]
    assert not np.allclose(*ways), "targets with and without double differ in this batch"


def test_natures_preset_has_the_papers_hyper_parameters() -> None:
    preset = prl.DQN.nature(capacity=80_000, num_envs=8)
    given = preset["algo_factory"].hyper_parameters
    expected = {
        "lr": 2.5e-4,
        "optimizer": prl.RMSprop(alpha=0.95, eps=0.01 / 32**2, centered=True, eps_inside_root=True),
        "gamma": 0.99,
        "double": False,
        "huber_threshold": 1.0,
        "start_steps": 50_000,
        "update_every": 4,
        "mini_batch_size": 32,
        "polyak": 0.0,
        "target_update_interval": 10_000,
        "max_grad_norm": None,
    }
    assert {name: given[name] for name in expected} == expected
    # The schedule counts transitions; the length of the run does not matter.
    assert [given["epsilon"].at(steps, 7) for steps in (0, 500_000, 1_000_000, 50_000_000)] == [1.0, 0.55, 0.1, 0.1]
    assert preset["storage_factory"].hyper_parameters["size"] == 10_000
    envs = envs_with(spaces.Discrete(6))
    envs.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    algorithm = preset["algo_factory"]("cpu", preset["actor_factory"]("cpu", envs), envs)
    shapes = [tuple(parameter.shape) for name, parameter in algorithm.q.named_parameters() if "weight" in name]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (6, 512)]


def test_hyper_parameters_can_be_changed_within_their_range_after_creation() -> None:
    algorithm = linear_dqn(lr=1e-3)
    algorithm.update_algorithm_parameter("lr", 1e-4)
    assert algorithm.trained.stepper.learning_rate == 1e-4
    algorithm.update_algorithm_parameter("gamma", 0.5)
    assert algorithm.gamma == 0.5
    with pytest.raises(ValueError, match=r"DQN: gamma must lie in \[0, 1\], got 1.5"):
        algorithm.update_algorithm_parameter("gamma", 1.5)
    with pytest.raises(ValueError, match="unknown hyper-parameter 'gama'; did you mean 'gamma'"):
        algorithm.update_algorithm_parameter("gama", 0.5)


@pytest.mark.parametrize("cls", [prl.DQN, prl.SARSA, prl.DPP, prl.ResidualDQN, prl.MunchausenDQN, prl.MunchausenIQN])
def test_natures_settings_are_taken_by_every_variant_as_far_as_it_has_them(cls: type[prl.DQN]) -> None:
    made = cls.nature()["algo_factory"].hyper_parameters
    assert made["lr"] == 2.5e-4
    assert made["optimizer"] == prl.DQN.nature()["algo_factory"].hyper_parameters["optimizer"]
    assert ("double" in made) == (cls in (prl.DQN, prl.SARSA))
