"""REINFORCE follows the likelihood-ratio gradient; returns are complete or bootstrapped where episodes are cut."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ADV, MASK, OBS, RET
from tests.support.by_hand import (
    copies,
    envs_with,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
)
from tests.support.comparison import assert_equal
from tests.support.rollout_batches import SPACES, rollout_batch
from tests.support.training import train


def linear_reinforce(space: Any, **hyper_parameters: Any) -> prl.REINFORCE:
    envs = envs_with(space)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(), initial_log_std=-0.5)("cpu", envs)
    algorithm: prl.REINFORCE = prl.REINFORCE.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(actor, 1, 0.5)
    return algorithm


@pytest.mark.parametrize("weighting", ["returns", "advantages", "normalised advantages"])
@pytest.mark.parametrize("kind", SPACES)
def test_gradients_are_those_of_the_likelihood_ratio_in_numpy(kind: str, weighting: str) -> None:
    algorithm = linear_reinforce(
        SPACES[kind],
        baseline=weighting != "returns",
        # Returns are left as they are.
        normalize_advantages=weighting != "advantages",
        entropy_coef=0.1,
        value_loss_coef=0.7,
    )
    batch = rollout_batch(algorithm)
    before = copies(batch)
    fields = {key: numpy(value) for key, value in batch.items()}
    policy, value = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)
    log_std = np.zeros(2) if kind == "discrete" else numpy(algorithm.pi.head.log_std)  # type: ignore[arg-type]
    advantages = fields[ADV]
    weights_of_log_probs = {
        "returns": fields[RET],
        "advantages": advantages,
        "normalised advantages": (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8),
    }[weighting]

    def parts() -> dict[str, float]:
        output = linear(policy, fields[OBS])
        if kind == "discrete":
            log_p = output - np.log(np.exp(output).sum(1, keepdims=True))
            log_prob = np.take_along_axis(log_p, fields[ACT].astype(int), 1)
            entropy = -(np.exp(log_p) * log_p).sum(1).mean()
        else:
            z = (fields[ACT] - output) / np.exp(log_std)
            log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1, keepdims=True)
            entropy = (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()
        value_loss = 0.5 * ((linear(value, fields[OBS]) - fields[RET]) ** 2).mean()
        return {"policy_loss": -(weights_of_log_probs * log_prob).mean(), "value_loss": value_loss, "entropy": entropy}

    def loss() -> float:
        terms = parts()
        return terms["policy_loss"] + 0.7 * terms["value_loss"] - 0.1 * terms["entropy"]

    gradients, result = algorithm.compute_gradients(batch)
    for name, expected in parts().items():
        np.testing.assert_allclose(result.metrics[name], expected, rtol=1e-4)
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


def test_an_update_is_a_step_along_the_gradient() -> None:
    one, two = (linear_reinforce(SPACES["discrete"], lr=0.01, max_grad_norm=None) for _ in range(2))
    two.set_weights(one.get_weights())
    batch = rollout_batch(one)
    gradients, _ = one.compute_gradients(batch)
    before = layer_of(one.pi.head)[0].copy()
    one.apply_gradients(gradients)
    two.update(batch)
    step = first_adam_step(numpy(gradients["policy_and_value.0.head.layer.weight"]), 0.01)
    np.testing.assert_allclose(layer_of(one.pi.head)[0] - before, step, rtol=1e-4, atol=1e-7)
    assert all(torch.equal(weight, two.get_weights()[name]) for name, weight in one.get_weights().items())


# Episodes that terminate, are truncated, or are still running


class ConstantReward(gym.Env[Any, Any]):
    """Pays 1 for every step, with constant observations; ends after ``length`` steps by termination or truncation."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int, end: str) -> None:
        self.length, self.end = length, end
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count == self.length
        return np.zeros(1, np.float32), 1.0, over and self.end == "terminated", over and self.end == "truncated", {}


GAMMA, LENGTH = 0.8, 5
VALUE_IF_ENDLESS = 1 / (1 - GAMMA)
VALUE_IF_TERMINATED = np.mean([(1 - GAMMA**left) / (1 - GAMMA) for left in range(1, LENGTH + 1)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("length", "end", "expected"),
    [
        (LENGTH, "truncated", VALUE_IF_ENDLESS),
        (10**9, "truncated", VALUE_IF_ENDLESS),
        (LENGTH, "terminated", VALUE_IF_TERMINATED),
    ],
    ids=["cut by a limit", "running when the rollout is full", "terminated"],
)
def test_a_constant_reward_has_the_value_of_an_endless_episode_unless_it_terminates(
    length: int, end: str, expected: float
) -> None:
    scheme = prl.Scheme(
        prl.REINFORCE.create_factory(
            gamma=GAMMA,
            lr=prl.LinearSchedule(0.1, 0.0),
            episodes_per_update=1,
            value_loss_coef=1.0,
            max_grad_norm=None,
            test_every=0,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=()),
        prl.VanillaOnPolicyBuffer.create_factory(size=LENGTH),
        prl.VecEnv.create_factory(ConstantReward, env_kwargs={"length": length, "end": end}),
    )
    train(scheme, 400 * LENGTH)
    assert scheme.algorithm.updates == 400
    value = scheme.algorithm.value(scheme.actor.view(torch.zeros(1, 1)))
    assert float(value.detach()) == pytest.approx(expected, abs=0.02)


@pytest.mark.filterwarnings("ignore:VanillaOnPolicyBuffer. no episode terminates:RuntimeWarning")
def test_dropped_episodes_do_not_change_the_policy() -> None:
    def scheme(cut_episodes: str) -> prl.Scheme:
        return prl.Scheme(
            prl.REINFORCE.create_factory(episodes_per_update=2, test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=()),
            prl.VanillaOnPolicyBuffer.create_factory(size=20, cut_episodes=cut_episodes),
            prl.VecEnv.create_factory(ConstantReward, 2, env_kwargs={"length": 4, "end": "truncated"}),
        )

    for choice, updates in (("bootstrap", 5), ("drop", 0)):
        trained = scheme(choice)
        before = trained.algorithm.get_weights()
        train(trained, 40)
        assert trained.algorithm.updates == updates
        kept = all(torch.equal(weight, before[name]) for name, weight in trained.algorithm.get_weights().items())
        assert kept == (choice == "drop")


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("baseline", [False, True])
def test_returns_of_terminated_episodes_are_discounted_sums_of_rewards(baseline: bool, memory: Any) -> None:
    scheme = prl.Scheme(
        prl.REINFORCE.create_factory(gamma=GAMMA, episodes_per_update=2, baseline=baseline, normalize_advantages=False),
        prl.OnPolicyActor.create_factory(hidden_sizes=(), memory=memory, memory_size=2),
        prl.VanillaOnPolicyBuffer.create_factory(size=20, cut_episodes="drop"),
        prl.VecEnv.create_factory(ConstantReward, 2, env_kwargs={"length": 3, "end": "terminated"}),
    )
    scheme.collect(8)
    scheme.collect(8)
    scheme.storage.before_gradients()
    (batch,) = scheme.algorithm.batches(scheme.storage)
    learnt = batch[MASK] == 1 if memory else torch.ones_like(batch[RET], dtype=torch.bool)
    returns = [1 + GAMMA * (1 + GAMMA), 1 + GAMMA, 1.0]
    assert sorted(batch[RET][learnt].tolist(), reverse=True) == pytest.approx(sorted(2 * returns, reverse=True))
    # The step of the unfinished episode has no effect.
    changed = batch | {key: torch.where(learnt, batch[key], 1e3) for key in (RET, ADV)}
    assert_equal(*(scheme.algorithm.compute_gradients(each)[0] for each in (batch, changed)))


# Runs
