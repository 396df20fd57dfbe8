"""PPO's loss and gradients equal those of a slow numpy version; clipping and early stopping work."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ADV, LOGP, MASK, OBS, RET, REW, VAL
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
from tests.support.toys import Noise
from tests.support.training import train

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
    discrete = not isinstance(space, spaces.Box)
    if isinstance(space, spaces.Box):
        action = generator.normal(size=(SIZE, 2)).astype(np.float32)
    elif isinstance(space, spaces.MultiDiscrete):
        action = generator.integers(0, space.nvec, (SIZE, 2))
    else:
        action = generator.integers(0, 3, (SIZE, 1))
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


SPACES = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped values": {"use_clipped_value_loss": True},
    "values clipped by a range": {"use_clipped_value_loss": True, "value_clip_param": 0.6},
    "dual clip": {"dual_clip": 1.5},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", SPACES)
def test_losses_and_gradients_equal_those_of_a_numpy_version(kind: str, options: str) -> None:
    chosen = OPTIONS[options]
    algorithm = linear_ppo(SPACES[kind], entropy_coef=0.1, value_loss_coef=0.7, clip_param=0.3, **chosen)
    batch = rollout_batch(SPACES[kind])
    if options == "dual clip":
        batch[LOGP] = batch[LOGP] - 2  # so that some actions have become far more likely
    before = copies(batch)
    fields = {key: numpy(value) for key, value in batch.items()}
    policy, value = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)
    log_std = numpy(algorithm.pi.head.log_std) if kind == "box" else np.zeros(2)  # type: ignore[arg-type]

    def parts() -> dict[str, float]:
        output = fields[OBS] @ policy[0].T + policy[1]
        if kind != "box":
            choices = np.split(output, [2], axis=1) if kind == "multi-discrete" else [output]
            log_ps = [choice - np.log(np.exp(choice).sum(1, keepdims=True)) for choice in choices]
            columns = fields[ACT].astype(int)
            taken = [np.take_along_axis(p, columns[:, i : i + 1], 1) for i, p in enumerate(log_ps)]
            log_prob = np.sum(taken, axis=0)
            entropy = -sum((np.exp(p) * p).sum(1).mean() for p in log_ps)
        else:
            z = (fields[ACT] - output) / np.exp(log_std)
            log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1, keepdims=True)
            entropy = (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()
        ratio = np.exp(log_prob - fields[LOGP])
        advantage = (fields[ADV] - fields[ADV].mean()) / (fields[ADV].std(ddof=1) + 1e-8)
        gain = np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage)
        if "dual_clip" in chosen:
            assert ((gain < 1.5 * advantage) & (advantage < 0)).any(), "the bound is reached"
            gain = np.where(advantage < 0, np.maximum(gain, 1.5 * advantage), gain)
        policy_loss = -gain.mean()
        values = fields[OBS] @ value[0].T + value[1]
        errors = (values - fields[RET]) ** 2
        if "use_clipped_value_loss" in chosen:
            reach = chosen.get("value_clip_param", 0.3)
            near = fields[VAL] + np.clip(values - fields[VAL], -reach, reach)
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


def test_ratios_beyond_the_clip_in_the_direction_of_the_advantage_give_no_gradient() -> None:
    algorithm = linear_ppo(SPACES["discrete"], value_loss_coef=0.0, normalize_advantages=False)
    batch = rollout_batch(SPACES["discrete"])
    batch[LOGP] = batch[LOGP] - 5  # the new policy is far more likely to take these actions
    batch[ADV] = batch[ADV].abs()
    gradients, result = algorithm.compute_gradients(batch)
    info = result.metrics
    assert info["clip_fraction"] == 1
    assert all((gradient == 0).all() for name, gradient in gradients.items() if name.startswith("policy_and_value.0."))


def test_the_update_phase_stops_if_the_divergence_is_too_large() -> None:
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


def test_gaussian_actions_are_stored_unclipped_and_clipped_for_the_environment() -> None:
    algorithm = linear_ppo(SPACES["box"])
    step = algorithm.acting_step(
        torch.randn(200, OBSERVATION_SIZE), None, torch.zeros(200, 1), exploring(algorithm, 200)
    )
    assert step.action.abs().max() > 1
    assert torch.equal(step.env_action, step.action.clamp(-1, 1))
    assert step.fields[LOGP].shape == (200, 1)


@pytest.mark.parametrize("kind", SPACES)
def test_the_first_update_computes_the_log_probabilities_that_acting_stored(kind: str) -> None:
    algorithm = linear_ppo(SPACES[kind])
    obs = torch.randn(SIZE, OBSERVATION_SIZE)
    step = algorithm.acting_step(obs, None, torch.zeros(SIZE, 1), exploring(algorithm, SIZE))
    batch = rollout_batch(SPACES[kind]) | {OBS: obs, ACT: step.action.clone(), LOGP: step.fields[LOGP].clone()}
    info = algorithm.update(batch).metrics
    assert abs(info["kl"]) < 1e-6
    assert info["clip_fraction"] == 0


def test_schedules_of_learning_rate_and_clip_use_the_progress_of_the_run() -> None:
    algorithm = linear_ppo(
        SPACES["discrete"], lr=prl.LinearSchedule(1e-3, 0.0), clip_param=prl.LinearSchedule(0.2, 0.1)
    )
    algorithm.set_progress(75, 100)
    assert algorithm.trained.stepper.learning_rate == pytest.approx(2.5e-4)
    assert algorithm.current(algorithm.clip_param) == pytest.approx(0.125)


# Rollouts


def noise_scheme(memory: Any = None, cut_episodes: str = "bootstrap", **hyper_parameters: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(**{"num_epochs": 1, "num_mini_batch": 2, "test_every": 0} | hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,), memory=memory, memory_size=3),
        prl.VanillaOnPolicyBuffer.create_factory(
            size=32, cut_episodes=cut_episodes, sequence_length=4 if memory else None
        ),
        prl.VecEnv.create_factory(Noise, 2),
    )


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("cut_episodes", ["bootstrap", "drop"])
def test_advantages_of_a_rollout_are_normalised_once_for_all_its_batches(memory: Any, cut_episodes: str) -> None:
    scheme = noise_scheme(memory, cut_episodes, normalize_advantages="rollout")
    scheme.collect(64)
    scheme.storage.before_gradients()
    batches = list(scheme.algorithm.batches(scheme.storage))
    all_rows = [scheme.algorithm.read(batch) for batch in batches]
    masks = [batch.get(MASK, torch.ones_like(batch[ADV])).reshape(-1, 1) for batch in batches]
    used = torch.cat([scheme.algorithm.advantages(rows)[mask == 1] for rows, mask in zip(all_rows, masks, strict=True)])
    assert float(used.mean()) == pytest.approx(0, abs=1e-6)
    assert float(used.std()) == pytest.approx(1, abs=1e-5)
    assert abs(float(scheme.algorithm.advantages(all_rows[0]).mean())) > 1e-3, "each batch is not normalised separately"


def test_masked_steps_of_sequences_do_not_affect_gradients() -> None:
    scheme = noise_scheme("gru", "drop")
    scheme.collect(64)
    scheme.storage.before_gradients()
    batch = next(scheme.algorithm.batches(scheme.storage))
    padding = batch[MASK] == 0
    assert padding.any()
    gradients, result = scheme.algorithm.compute_gradients(batch)
    changes = {key: torch.where(padding, batch[key] + 3, batch[key]) for key in (ADV, RET, VAL, LOGP)}
    same, result_of_same = scheme.algorithm.compute_gradients(batch | changes)
    assert_equal(gradients, same)
    assert_equal(result.metrics, result_of_same.metrics)
    # Advantages are normalised over the unmasked steps only.
    rows = scheme.algorithm.read(batch)
    kept = batch[ADV][~padding]
    expected = (kept - kept.mean()) / kept.std()
    torch.testing.assert_close(scheme.algorithm.advantages(rows)[~padding.flatten(0, 1)], expected)


@pytest.mark.parametrize(("desired_kl", "factor"), [(1e3, 1.5), (1e-9, 1 / 1.5), (None, 1)])
def test_the_learning_rate_adapts_to_the_divergence_after_each_update_phase(desired_kl: Any, factor: float) -> None:
    scheme = noise_scheme(desired_kl=desired_kl, num_epochs=3, lr=prl.LinearSchedule(0.01, 0.0))
    train(scheme, 64)
    train(scheme, 128)
    rates = scheme.algorithm.trained.stepper.learning_rate
    scheme.set_progress(64, 128)
    assert rates == pytest.approx(0)
    assert scheme.algorithm.trained.stepper.learning_rate == pytest.approx(0.005 * factor**2)
    for _ in range(20):
        scheme.collect(10**6)
        list(scheme.update())
    # It stays within bounds.
    assert scheme.algorithm.trained.stepper.learning_rate == pytest.approx(0.005 * factor**11)


# Values


@pytest.mark.parametrize(
    "cls", ["VanillaOnPolicyBuffer", "GAEBuffer", "LambdaReturnBuffer", "VTraceBuffer", "AverageRewardBuffer"]
)
def test_batches_of_every_rollout_storage_hold_the_values_before_the_update(cls: str) -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(use_clipped_value_loss=True, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        getattr(prl, cls).create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1", 2),
        seed=1,
    )
    scheme.collect(10_000)
    actor = scheme.algorithm.actor
    scheme.storage.before_gradients()
    rows = 0
    for batch in scheme.storage.generate_batches(2):
        expected = actor.value(batch[OBS], None, torch.zeros(len(batch[OBS]), 1))
        torch.testing.assert_close(batch[VAL], expected, rtol=1e-5, atol=1e-6)
        rows += len(expected)
    assert rows == 32
    assert len(list(scheme.update())) == 8
