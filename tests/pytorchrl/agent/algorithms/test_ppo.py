"""PPO's loss and gradients equal those of a slow numpy version, and its clips and stops work."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ADV, LOGP, OBS, RET, REW, VAL
from tests.support.by_hand import (
    OBSERVATION_SIZE,
    copies,
    envs_with,
    exploring,
    layer_of,
    numeric_gradient,
    numpy,
    perturb,
)
from tests.support.comparison import assert_equal

SIZE = 8


def linear_ppo(space: Any, **hyper_parameters: Any) -> prl.PPO:
    envs = envs_with(space)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(), initial_log_std=-0.5)("cpu", envs)
    algorithm = prl.PPO.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(actor, 1, 0.5)
    return algorithm


def rollout_batch(space: Any) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(0)
    discrete = isinstance(space, spaces.Discrete)
    action = generator.integers(0, 3, (SIZE, 1)) if discrete else generator.normal(size=(SIZE, 2)).astype(np.float32)
    column = lambda scale: (scale * generator.normal(size=(SIZE, 1))).astype(np.float32)  # noqa: E731
    fields = {
        OBS: generator.normal(size=(SIZE, OBSERVATION_SIZE)).astype(np.float32),
        ACT: action,
        LOGP: column(0.3) - (1.1 if discrete else 2.0),
        ADV: column(2.0),
        VAL: column(1.0),
        RET: column(1.0),
        REW: column(1.0),
    }
    return {key: torch.from_numpy(value) for key, value in fields.items()}


SPACES = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}


@pytest.mark.parametrize("clip_values", [False, True])
@pytest.mark.parametrize("kind", SPACES)
def test_losses_and_gradients_equal_those_of_a_numpy_version(kind: str, clip_values: bool) -> None:
    algorithm = linear_ppo(
        SPACES[kind], use_clipped_value_loss=clip_values, entropy_coef=0.1, value_loss_coef=0.7, clip_param=0.3
    )
    batch = rollout_batch(SPACES[kind])
    before = copies(batch)
    fields = {key: numpy(value) for key, value in batch.items()}
    policy, value = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)
    log_std = np.zeros(2) if kind == "discrete" else numpy(algorithm.pi.head.log_std)  # type: ignore[arg-type]

    def parts() -> dict[str, float]:
        output = fields[OBS] @ policy[0].T + policy[1]
        if kind == "discrete":
            log_p = output - np.log(np.exp(output).sum(1, keepdims=True))
            log_prob = np.take_along_axis(log_p, fields[ACT].astype(int), 1)
            entropy = -(np.exp(log_p) * log_p).sum(1).mean()
        else:
            z = (fields[ACT] - output) / np.exp(log_std)
            log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1, keepdims=True)
            entropy = (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()
        ratio = np.exp(log_prob - fields[LOGP])
        advantage = (fields[ADV] - fields[ADV].mean()) / (fields[ADV].std(ddof=1) + 1e-8)
        policy_loss = -np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage).mean()
        values = fields[OBS] @ value[0].T + value[1]
        errors = (values - fields[RET]) ** 2
        if clip_values:
            near = fields[VAL] + np.clip(values - fields[VAL], -0.3, 0.3)
            errors = np.maximum(errors, (near - fields[RET]) ** 2)
        return {"policy_loss": policy_loss, "value_loss": 0.5 * errors.mean(), "entropy": entropy}

    def loss() -> float:
        terms = parts()
        return terms["policy_loss"] + 0.7 * terms["value_loss"] - 0.1 * terms["entropy"]

    gradients, result = algorithm.compute_gradients(batch)
    info = result.metrics
    for name, expected in parts().items():
        np.testing.assert_allclose(info[name], expected, rtol=1e-4)
    expectations = {
        "policy_and_value.0.head.layer.weight": policy[0],
        "policy_and_value.0.head.layer.bias": policy[1],
        "policy_and_value.1.head.layer.weight": value[0],
        "policy_and_value.1.head.layer.bias": value[1],
    }
    if kind == "box":
        expectations["policy_and_value.0.head.log_std"] = log_std
    assert gradients.keys() == expectations.keys()
    for name, parameter in expectations.items():
        np.testing.assert_allclose(numpy(gradients[name]), numeric_gradient(loss, parameter), rtol=1e-3, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_a_ratio_that_left_the_clip_in_the_right_direction_gives_no_gradient() -> None:
    algorithm = linear_ppo(SPACES["discrete"], value_loss_coef=0.0, normalize_advantages=False)
    batch = rollout_batch(SPACES["discrete"])
    batch[LOGP] = batch[LOGP] - 5  # the new policy is far more likely to act so
    batch[ADV] = batch[ADV].abs()
    gradients, result = algorithm.compute_gradients(batch)
    info = result.metrics
    assert info["clip_fraction"] == 1
    assert all((gradient == 0).all() for name, gradient in gradients.items() if name.startswith("policy_and_value.0."))


def test_the_update_phase_stops_when_the_policy_moved_too_far() -> None:
    algorithm = linear_ppo(SPACES["discrete"], target_kl=0.01)
    batch = rollout_batch(SPACES["discrete"])
    weights = algorithm.get_weights()
    result = algorithm.update(batch)
    assert result.metrics["kl"] > 0.015
    assert result.stop
    assert algorithm.updates == 0
    assert all(torch.equal(weight, weights[name]) for name, weight in algorithm.get_weights().items())
    gradients, _ = algorithm.compute_gradients(batch)
    algorithm.apply_gradients(gradients)
    assert all(torch.equal(weight, weights[name]) for name, weight in algorithm.get_weights().items())


def test_gaussian_actions_are_stored_as_drawn_and_clipped_on_their_way_to_the_environment() -> None:
    algorithm = linear_ppo(SPACES["box"])
    step = algorithm.acting_step(
        torch.randn(200, OBSERVATION_SIZE), None, torch.zeros(200, 1), exploring(algorithm, 200)
    )
    assert step.action.abs().max() > 1
    assert torch.equal(step.env_action, step.action.clamp(-1, 1))
    assert step.fields[VAL].shape == step.fields[LOGP].shape == (200, 1)


def test_a_box_without_bounds_is_left_alone() -> None:
    algorithm = linear_ppo(spaces.Box(-np.inf, np.inf, (2,), np.float32))
    step = algorithm.acting_step(
        torch.randn(200, OBSERVATION_SIZE), None, torch.zeros(200, 1), exploring(algorithm, 200)
    )
    assert step.env_action is step.action


@pytest.mark.parametrize("kind", SPACES)
def test_what_was_stored_when_acting_is_what_the_first_update_computes(kind: str) -> None:
    algorithm = linear_ppo(SPACES[kind])
    obs = torch.randn(SIZE, OBSERVATION_SIZE)
    step = algorithm.acting_step(obs, None, torch.zeros(SIZE, 1), exploring(algorithm, SIZE))
    batch = rollout_batch(SPACES[kind]) | {OBS: obs, ACT: step.action.clone(), LOGP: step.fields[LOGP].clone()}
    info = algorithm.update(batch).metrics
    assert abs(info["kl"]) < 1e-6
    assert info["clip_fraction"] == 0


def test_evaluation_takes_the_most_likely_action_and_draws_no_random_number() -> None:
    algorithm = linear_ppo(SPACES["discrete"])
    obs = torch.randn(SIZE, OBSERVATION_SIZE)
    evaluation = exploring(algorithm, SIZE, deterministic=True)
    before = evaluation.state_dict()
    step = algorithm.acting_step(obs, None, torch.zeros(SIZE, 1), evaluation)
    assert torch.equal(step.action, algorithm.pi(algorithm.actor.view(obs)).mode())
    assert not step.fields
    assert_equal(evaluation.state_dict(), before)


def test_schedules_of_rate_and_clip_follow_the_run() -> None:
    algorithm = linear_ppo(
        SPACES["discrete"], lr=prl.LinearSchedule(1e-3, 0.0), clip_param=prl.LinearSchedule(0.2, 0.1)
    )
    algorithm.set_progress(75, 100)
    assert algorithm.trained.stepper.learning_rate == pytest.approx(2.5e-4)
    assert algorithm.current(algorithm.clip_param) == pytest.approx(0.125)
