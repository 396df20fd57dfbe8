"""Behaviour cloning's gradients equal those computed by hand, and its policy reproduces the actions of the data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.datasets import About, write_dataset
from storages.episode import Episode
from storages.transition import ACT, INDICES, MASK, OBS, REW, RHS, WEIGHTS, Batch
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)
from tests.support.data_sets import cloning, recorded
from tests.support.training import train

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
BOX_ACTIONS = np.array([[0.3, 4.0], [-1.9, 0.1], [2.0, 5.0], [0.0, 2.0], [1.0, 1.0], [-0.5, 3.0]], np.float32)


MIXTURE = prl.heads.MixturePolicy(num_components=2, smallest_log_std=-10.0)


def linear_bc(space: Any, **hyper_parameters: Any) -> prl.BehaviourCloning:
    torch.manual_seed(0)
    envs = envs_with(space)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(), initial_log_std=-0.3)("cpu", envs)
    algorithm = prl.BehaviourCloning.create_factory(**hyper_parameters)("cpu", actor, envs)
    perturb(algorithm.pi, 1, 0.5)
    return algorithm


@pytest.mark.parametrize("entropy_coef", [0.0, 0.2])
def test_an_update_of_discrete_actions_equals_the_one_computed_by_hand(entropy_coef: float) -> None:
    algorithm = linear_bc(spaces.Discrete(3), lr=0.01, entropy_coef=entropy_coef)
    batch = replayed(ACTIONS)
    before = copies(batch)
    obs, weight = numpy(batch[OBS]), numpy(batch[WEIGHTS])[:, 0] / len(ACTIONS)
    layer = layer_of(algorithm.pi.head)
    rows = np.arange(len(ACTIONS))

    def surprisal_and_entropy() -> Any:
        scores = linear(layer, obs)
        log_probs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        return -log_probs[rows, ACTIONS[:, 0]], -(np.exp(log_probs) * log_probs).sum(1)

    def loss() -> Any:
        of_actions, entropy = surprisal_and_entropy()
        return (weight * of_actions).sum() - entropy_coef * entropy.mean()

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss(), rtol=1e-5)
    np.testing.assert_allclose(result.metrics["entropy"], surprisal_and_entropy()[1].mean(), rtol=1e-5)
    assert result.errors is not None
    np.testing.assert_allclose(numpy(result.errors)[:, 0], surprisal_and_entropy()[0], rtol=1e-4)
    by_hand = [numeric_gradient(loss, parameter) for parameter in layer]
    for name, gradient in zip(("weight", "bias"), by_hand, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"policy.head.layer.{name}"]), gradient, rtol=1e-3, atol=1e-6)
    algorithm.update(batch)
    for after, parameter, gradient in zip(layer_of(algorithm.pi.head), layer, by_hand, strict=True):
        np.testing.assert_allclose(after, parameter + first_adam_step(gradient, 0.01), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.2])
def test_an_update_of_continuous_actions_equals_the_one_computed_by_hand(entropy_coef: float) -> None:
    algorithm = linear_bc(BOX, entropy_coef=entropy_coef)
    batch = replayed(BOX_ACTIONS)
    obs, weight = numpy(batch[OBS]), numpy(batch[WEIGHTS])[:, 0] / len(BOX_ACTIONS)
    layer, log_std = layer_of(algorithm.pi.head), numpy(algorithm.pi.head.log_std)

    def loss() -> Any:
        # Actions are those of the environments, not scaled to their bounds.
        distance = (BOX_ACTIONS - linear(layer, obs)) / np.exp(log_std)
        log_probs = (-0.5 * distance**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1)
        entropy = (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()
        return -(weight * log_probs).sum() - entropy_coef * entropy

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss(), rtol=1e-5)
    for name, parameter in (("layer.weight", layer[0]), ("layer.bias", layer[1]), ("log_std", log_std)):
        by_hand = numeric_gradient(loss, parameter)
        np.testing.assert_allclose(numpy(gradients[f"policy.head.{name}"]), by_hand, rtol=1e-3, atol=1e-5)


def squashed_log_probs(output: Any) -> Any:
    """Log probabilities (N) of actions that are scaled from (-1, 1) to the Box, by double loops."""
    # Actions at a bound are moved inside by 1e-6, in single precision.
    scaled = (
        np.stack([BOX_ACTIONS[:, 0] / 2, BOX_ACTIONS[:, 1] / 2.5 - 1], axis=1)
        .clip(-1 + 1e-6, 1 - 1e-6)
        .astype(np.float64)
    )
    log_probs = np.zeros(len(BOX_ACTIONS))
    for row, numbers in enumerate(output):
        for part, half_range in enumerate((2.0, 2.5)):
            mean, log_std, action = numbers[part], numbers[2 + part].clip(-20, 2), scaled[row, part]
            z = (np.arctanh(action) - mean) / np.exp(log_std)
            log_probs[row] -= 0.5 * z**2 + log_std + 0.5 * np.log(2 * np.pi)
            log_probs[row] -= np.log(1 - action**2) + np.log(half_range)
    return log_probs


def mixture_log_probs(output: Any) -> Any:
    """Log probabilities (N) of a mixture of two normals in the units of the Box, by loops over components."""
    log_probs = np.zeros(len(BOX_ACTIONS))
    for row, numbers in enumerate(output):
        logits, mean = numbers[:2], numbers[2:6].reshape(2, 2)
        log_std = (numbers[6:].reshape(2, 2) - 0.3).clip(-10, 2)
        probability = np.exp(logits) / np.exp(logits).sum()
        density = 0.0
        for component in range(2):
            of_component = 1.0
            for part in range(2):
                std = np.exp(log_std[component, part])
                z = (BOX_ACTIONS[row, part] - mean[component, part]) / std
                of_component *= np.exp(-0.5 * z**2) / (std * np.sqrt(2 * np.pi))
            density += probability[component] * of_component
        log_probs[row] = np.log(density)
    return log_probs


DISTRIBUTIONS: dict[str, tuple[Any, Any]] = {
    "squashed": (prl.heads.SquashedGaussianPolicy(), squashed_log_probs),
    "mixture": (MIXTURE, mixture_log_probs),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_an_update_of_other_continuous_distributions_equals_the_one_computed_by_hand(name: str) -> None:
    head, log_probs = DISTRIBUTIONS[name]
    algorithm = linear_bc(BOX, distribution=head)
    batch = replayed(BOX_ACTIONS)
    obs, weight = numpy(batch[OBS]), numpy(batch[WEIGHTS])[:, 0] / len(BOX_ACTIONS)
    module = algorithm.pi.head.head if head.is_scaled else algorithm.pi.head
    prefix = "policy.head.head.layer" if head.is_scaled else "policy.head.layer"
    layer = layer_of(module)

    def loss() -> Any:
        return -(weight * log_probs(linear(layer, obs))).sum()

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss(), rtol=1e-4)
    assert result.errors is not None
    np.testing.assert_allclose(numpy(result.errors)[:, 0], -log_probs(linear(layer, obs)), rtol=1e-3)
    for kind, parameter in zip(("weight", "bias"), layer, strict=True):
        by_hand = numeric_gradient(loss, parameter)
        np.testing.assert_allclose(numpy(gradients[f"{prefix}.{kind}"]), by_hand, rtol=2e-3, atol=2e-4)


@pytest.mark.long
def test_a_mixture_takes_a_mode_of_the_data_where_a_normal_takes_the_mean(tmp_path: Path) -> None:
    data = write_two_mode_data(tmp_path / "data.npz")
    done = {}
    for name, head in (("normal", prl.heads.Policy()), ("mixture", prl.heads.MixturePolicy(num_components=2))):
        algorithm = {"lr": 1e-2, "mini_batch_size": 64, "distribution": head}
        storage = prl.ReplayBuffer.create_factory(size=400)
        scheme = train(cloning(data, storage, algorithm=algorithm, seed=2), 300)
        exploration = exploring(scheme.algorithm, 50, deterministic=True)
        obs = torch.linspace(-1, 1, 50)[:, None]
        done[name] = scheme.algorithm.acting_step(obs, None, torch.zeros(50, 1), exploration).action
    assert done["normal"].abs().mean() < 0.4
    assert (done["mixture"].abs() - 0.8).abs().max() < 0.15


def write_two_mode_data(path: Path) -> Path:
    """Actions close to 0.8 or to -0.8, in any state."""
    random = np.random.default_rng(0)
    episodes = []
    for _ in range(20):
        seen = random.uniform(-1, 1, (21, 1)).astype(np.float32)
        actions = random.choice([-0.8, 0.8], (20, 1)) + random.normal(0, 0.03, (20, 1))
        fields = {ACT: actions.astype(np.float32), REW: np.zeros((20, 1), np.float32)}
        episodes.append(Episode(seen, fields, terminated=True, truncated=False))
    box = {"type": "Box", "dtype": "float32", "shape": [1], "low": [-1.0], "high": [1.0]}
    write_dataset(path, episodes, about=About(observation_space=box, action_space=box))
    return path


def test_padding_does_not_affect_gradients() -> None:
    algorithm = linear_bc(spaces.Discrete(3))
    flat = replayed(ACTIONS)
    flat[WEIGHTS] = torch.ones(6, 1)
    alone, _ = algorithm.compute_gradients(flat)
    padded: Batch = {
        key: torch.stack([flat[key][:3], flat[key][3:]], dim=1) for key in flat if key not in (WEIGHTS, INDICES)
    }
    padded = {key: torch.cat([field, 7 * torch.ones_like(field[:1])]) for key, field in padded.items()}
    padded[ACT][3] = 0
    padded[MASK] = torch.ones(4, 2, 1)
    padded[MASK][3] = 0
    padded[WEIGHTS] = torch.ones(2, 1)
    gradients, result = algorithm.compute_gradients(padded)
    for name, gradient in alone.items():
        torch.testing.assert_close(gradients[name], gradient)
    assert result.errors is not None
    assert result.errors.shape == (4, 2, 1)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_policy_reproduces_the_actions_of_the_data(env: str, tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz", env, steps=100)
    algorithm = {"lr": 1e-2, "mini_batch_size": 64}
    scheme = train(cloning(data, algorithm=algorithm, actor={"hidden_sizes": (32,)}), 300)
    held = scheme.storage.get_all_buffer_data()
    obs = held[OBS][:, 0]
    exploration = exploring(scheme.algorithm, len(obs), deterministic=True)
    done = scheme.algorithm.acting_step(obs, None, torch.zeros(len(obs), 1), exploration)
    if env == "CartPole-v1":
        assert (done.action == held[ACT][:, 0]).float().mean() > 0.9
    else:
        assert (done.action - held[ACT][:, 0]).abs().mean() < 0.1


MEMORIES = {
    "sequences": prl.Sequences(5, burn_in=2),
    "episodes": prl.Episodes(whole=False),
    "packed episodes": prl.Episodes(whole=False, packed=True),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MEMORIES)
def test_a_recurrent_actor_learns_actions_that_depend_on_past_observations(name: str, tmp_path: Path) -> None:
    data = write_data_of_previous_observations(tmp_path / "data.npz")
    scheme = prl.Scheme(
        prl.BehaviourCloning.create_factory(lr=1e-2, mini_batch_size=16, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=8),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=400, sequences=MEMORIES[name]), data),
        seed=1,
    )
    assert not scheme.storage.get_all_buffer_data()[RHS].any()
    train(scheme, 150)
    last = [float(metrics["loss"]) for _ in range(10) for metrics in scheme.update()]
    # Without a memory, the smallest possible loss is log(2) = 0.69.
    assert np.mean(last) < 0.3


def write_data_of_previous_observations(path: Path) -> Path:
    """Episodes in which each action equals the previous observation."""
    generator = np.random.default_rng(0)
    episodes = []
    for _ in range(40):
        seen = generator.integers(0, 2, (11, 1)).astype(np.float32)
        actions = np.concatenate([[[0.0]], seen[:-2]]).astype(np.int64)
        fields = {ACT: actions, REW: np.zeros((10, 1), np.float32)}
        episodes.append(Episode(seen, fields, terminated=True, truncated=False))
    box = {"type": "Box", "dtype": "float32", "shape": [1], "low": [0.0], "high": [1.0]}
    discrete = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}
    write_dataset(path, episodes, about=About(observation_space=box, action_space=discrete))
    return path
