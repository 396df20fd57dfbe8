"""AIRL's discriminator and rewards equal those computed by hand, in the order of the paper's algorithm."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, DONE2, LOGP, OBS, OBS2, REW, Batch
from tests.support.by_hand import (
    copies,
    envs_with,
    first_adam_step,
    layer_of,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)
from tests.support.by_hand import (
    linear as linear_of,
)
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.order_of_training import events_of
from tests.support.rollout_batches import rollout_batch

SPACES = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}
EXPERT_ACTIONS = {
    "discrete": np.array([[0], [2], [1], [2], [0], [1]]),
    "box": np.random.default_rng(5).uniform(-1, 1, (6, 2)).astype(np.float32),
}
KINDS = [(space, reward_of) for space in SPACES for reward_of in ("state", "state-action")]


def linear_airl(kind: str, reward_of: str, **hyper_parameters: Any) -> prl.AIRL:
    envs = envs_with(SPACES[kind])
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(), initial_log_std=-0.3)("cpu", envs)
    factory = prl.AIRL.create_factory(reward_of=reward_of, **hyper_parameters)  # type: ignore[arg-type]
    algorithm = factory("cpu", actor, envs)
    perturb(actor, 1, 0.5)
    return algorithm


def rollout(algorithm: prl.AIRL) -> Batch:
    """A rollout of the policy with next observations, one of which is terminal."""
    policy_batch = rollout_batch(algorithm)
    generator = np.random.default_rng(8)
    following = torch.from_numpy(generator.normal(size=(8, 3)).astype(np.float32))
    ended = torch.zeros(8, 1)
    ended[3] = 1
    return policy_batch | {OBS2: following, DONE2: ended}


class ByHand:
    """The discriminator in numpy; its layers can be changed in place."""

    def __init__(self, algorithm: prl.AIRL, kind: str) -> None:
        self.kind = kind
        self.takes_action = algorithm.reward_of == "state-action"
        self.reward = layer_of(algorithm.kept_reward.head)
        self.potential = layer_of(algorithm.potential.head)
        self.policy = layer_of(algorithm.pi.head)
        self.log_std = None if kind == "discrete" else numpy(algorithm.pi.head.log_std)

    def log_prob(self, batch: Any) -> Any:
        output, action = linear_of(self.policy, numpy(batch[OBS])), numpy(batch[ACT])
        if self.log_std is None:
            log_probs = output - np.log(np.exp(output).sum(1, keepdims=True))
            return log_probs[np.arange(len(action)), action[:, 0].astype(int)]
        distance = (action - output) / np.exp(self.log_std)
        return (-0.5 * distance**2 - self.log_std - 0.5 * np.log(2 * np.pi)).sum(1)

    def kept(self, batch: Any) -> Any:
        inputs = numpy(batch[OBS])
        if self.takes_action:
            action = numpy(batch[ACT])
            columns = np.eye(3)[action[:, 0].astype(int)] if self.kind == "discrete" else action.clip(-1, 1)
            inputs = np.hstack([inputs, columns])
        return linear_of(self.reward, inputs)[:, 0]

    def logits(self, batch: Any) -> Any:
        before, after = (linear_of(self.potential, numpy(batch[key]))[:, 0] for key in (OBS, OBS2))
        shaped = self.kept(batch) + 0.99 * (1 - numpy(batch[DONE2])[:, 0]) * after - before
        return shaped - self.log_prob(batch)


@pytest.mark.parametrize(("kind", "reward_of"), KINDS)
@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_the_discriminators_update_equals_the_one_computed_by_hand(
    kind: str, reward_of: str, entropy_coef: float
) -> None:
    algorithm = linear_airl(kind, reward_of, lr_discriminator=0.01, discriminator_entropy_coef=entropy_coef)
    policy_batch, expert_batch = rollout(algorithm), replayed(EXPERT_ACTIONS[kind])
    before = copies(policy_batch), copies(expert_batch)
    policy = copies(algorithm.pi.state_dict())
    by_hand = ByHand(algorithm, kind)

    def probability(batch: Any) -> Any:
        # exp(f) / (exp(f) + pi), in the paper's own form.
        log_prob = by_hand.log_prob(batch)
        shaped = by_hand.logits(batch) + log_prob
        return np.exp(shaped) / (np.exp(shaped) + np.exp(log_prob))

    def loss() -> Any:
        of_policy, of_expert = probability(policy_batch), probability(expert_batch)
        cross_entropy = -np.log(1 - of_policy).mean() - np.log(of_expert).mean()
        entropies = [(-p * np.log(p) - (1 - p) * np.log(1 - p)).mean() for p in (of_policy, of_expert)]
        return cross_entropy - entropy_coef * sum(entropies)

    expected = loss()
    layers = {"kept_reward": by_hand.reward, "potential": by_hand.potential}
    steps = {
        name: [first_adam_step(numeric_gradient(loss, parameter), 0.01) for parameter in layer]
        for name, layer in layers.items()
    }
    metrics = algorithm.step_discriminator(policy_batch, expert_batch)
    np.testing.assert_allclose(metrics["discriminator_loss"], expected, rtol=1e-5)
    for name, layer in layers.items():
        after = layer_of(getattr(algorithm, name).head)
        for now, parameter, step in zip(after, layer, steps[name], strict=True):
            np.testing.assert_allclose(now, parameter + step, rtol=1e-4, atol=1e-5)
    assert_equal((policy_batch, expert_batch), before)
    assert_equal(algorithm.pi.state_dict(), policy)


@pytest.mark.parametrize(("kind", "reward_of"), KINDS)
def test_the_policys_reward_is_the_shaped_reward_minus_its_log_probability(kind: str, reward_of: str) -> None:
    algorithm = linear_airl(kind, reward_of)
    policy_batch, by_hand = rollout(algorithm), ByHand(algorithm, kind)
    with torch.no_grad():
        rows = algorithm.read(policy_batch)
        reward, kept = algorithm.reward(rows), algorithm.exported_reward(rows.now, rows.action)
    np.testing.assert_allclose(numpy(reward)[:, 0], by_hand.logits(policy_batch), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numpy(kept)[:, 0], by_hand.kept(policy_batch), rtol=1e-4, atol=1e-5)
    # The acting policy is the present policy.
    np.testing.assert_allclose(numpy(policy_batch[LOGP])[:, 0], by_hand.log_prob(policy_batch), rtol=1e-4, atol=1e-5)


def test_log_probabilities_in_the_experts_data_are_ignored() -> None:
    algorithm = linear_airl("discrete", "state")
    expert_batch = replayed(EXPERT_ACTIONS["discrete"])
    with torch.no_grad():
        plain = algorithm.logits(algorithm.read(expert_batch))
        with_log_probs = algorithm.logits(algorithm.read(expert_batch | {LOGP: torch.full((6, 1), -5.0)}))
    assert_equal(plain, with_log_probs)


# Whole update phases


def airl_scheme(data: Path, seed: int = 0, memory: Any = None, storage: Any = None, **settings: Any) -> prl.Scheme:
    sequences = prl.Sequences(4) if memory else None
    algorithm = {"discriminator_epochs": 2, "value_epochs": 2, "test_every": 48, "num_test_episodes": 1}
    expert = storage or prl.ReplayBuffer.create_factory(size=80, sequences=sequences)
    return prl.Scheme(
        prl.AIRL.create_factory(**(algorithm | settings)),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        prl.GAEBuffer.create_factory(size=8),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2, env_kwargs={"max_episode_steps": 30}),
        sources={"expert": prl.from_dataset(expert, data)},
        seed=seed,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "expert.npz")


def test_the_discriminator_learns_before_rewards_are_computed_the_policy_after(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = airl_scheme(data)
    scheme.collect(16)
    algorithm: Any = scheme.algorithm

    def check(event: str) -> None:
        if event == "policy":
            held = scheme.storage.get_all_buffer_data()
            with torch.no_grad():
                torch.testing.assert_close(held[REW].view(-1, 1), algorithm.reward(algorithm.read(held)))

    events = events_of(algorithm, monkeypatch, check)
    metrics = list(scheme.update())
    assert events == ["discriminator", "discriminator", "policy"]
    assert {"discriminator_loss", "discriminator_accuracy"} <= metrics[0].keys()
    assert {"imitation_reward", "kl"} <= metrics[-1].keys()


def test_n_step_expert_data_is_refused(data: Path) -> None:
    with pytest.raises(
        prl.CompositionError, match="AIRL learns from one-step transitions, but NStepReplayBuffer has n_step=3"
    ):
        airl_scheme(data, storage=prl.NStepReplayBuffer.create_factory(size=80, n_step=3))
    airl_scheme(data, storage=prl.NStepReplayBuffer.create_factory(size=80, n_step=1)).close()
