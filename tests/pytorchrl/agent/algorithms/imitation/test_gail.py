"""GAIL's discriminator and rewards equal those computed by hand, in the order of the paper's algorithm."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ADV, DONE, MASK, OBS, OBS2, RET, REW, SKIPPED, VAL
from tests.support.by_hand import (
    copies,
    envs_with,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.order_of_training import events_of
from tests.support.rollout_batches import rollout_batch
from tests.support.training import train

SPACES = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}
EXPERT_ACTIONS = {
    "discrete": np.array([[0], [2], [1], [2], [0], [1]]),
    "box": np.random.default_rng(5).uniform(-1, 1, (6, 2)).astype(np.float32),
}


def linear_gail(kind: str, **hyper_parameters: Any) -> prl.GAIL:
    envs = envs_with(SPACES[kind])
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.GAIL.create_factory(**hyper_parameters)("cpu", actor, envs)
    perturb(actor, 1, 0.5)
    return algorithm


def inputs(kind: str, batch: Any) -> Any:
    """Observations and actions side by side, as the discriminator takes them."""
    action = numpy(batch[ACT])
    # Actions of a Box are clipped to its bounds for the environments, and so for the discriminator.
    columns = np.eye(3)[action[:, 0].astype(int)] if kind == "discrete" else action.clip(-1, 1)
    return np.hstack([numpy(batch[OBS]), columns])


def probability(layer: Any, features: Any) -> Any:
    return 1 / (1 + np.exp(-linear(layer, features)[:, 0]))


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_the_discriminators_update_by_hand_has_label_1_for_the_expert(kind: str, entropy_coef: float) -> None:
    algorithm = linear_gail(kind, lr_discriminator=0.01, discriminator_entropy_coef=entropy_coef)
    policy_batch, expert_batch = rollout_batch(algorithm), replayed(EXPERT_ACTIONS[kind])
    before = copies(policy_batch), copies(expert_batch)
    others = algorithm.pi.state_dict() | {f"value.{k}": v for k, v in algorithm.value.state_dict().items()}
    others = copies(others)
    layer = layer_of(algorithm.discriminator.head)

    def expert_probabilities() -> Any:
        return probability(layer, inputs(kind, policy_batch)), probability(layer, inputs(kind, expert_batch))

    def loss() -> Any:
        of_policy, of_expert = expert_probabilities()
        cross_entropy = -np.log(1 - of_policy).mean() - np.log(of_expert).mean()
        entropies = [(-p * np.log(p) - (1 - p) * np.log(1 - p)).mean() for p in (of_policy, of_expert)]
        return cross_entropy - entropy_coef * sum(entropies)

    of_policy, of_expert = expert_probabilities()
    expected = loss()
    steps = [first_adam_step(numeric_gradient(loss, parameter), 0.01) for parameter in layer]
    metrics = algorithm.step_discriminator(policy_batch, expert_batch)
    np.testing.assert_allclose(metrics["discriminator_loss"], expected, rtol=1e-5)
    right = ((of_policy < 0.5).mean() + (of_expert > 0.5).mean()) / 2
    np.testing.assert_allclose(metrics["discriminator_accuracy"], right, rtol=1e-6)
    for after, parameter, step in zip(layer_of(algorithm.discriminator.head), layer, steps, strict=True):
        np.testing.assert_allclose(after, parameter + step, rtol=1e-4, atol=1e-5)
    assert_equal((policy_batch, expert_batch), before)
    assert_equal(algorithm.pi.state_dict() | {f"value.{k}": v for k, v in algorithm.value.state_dict().items()}, others)


@pytest.mark.parametrize("kind", SPACES)
def test_the_reward_is_minus_the_logarithm_of_one_minus_the_discriminators_output(kind: str) -> None:
    algorithm = linear_gail(kind)
    batch = replayed(EXPERT_ACTIONS[kind])
    expected = -np.log(1 - probability(layer_of(algorithm.discriminator.head), inputs(kind, batch)))
    with torch.no_grad():
        reward = algorithm.reward(algorithm.read(batch))
    assert reward.shape == (6, 1)
    np.testing.assert_allclose(numpy(reward)[:, 0], expected, rtol=1e-4)


def test_rewards_are_finite_for_a_saturated_discriminator() -> None:
    algorithm = linear_gail("discrete")
    for bias in (-500.0, 500.0):
        with torch.no_grad():
            algorithm.discriminator.head.layer.bias.fill_(bias)
            reward = algorithm.reward(algorithm.read(replayed(EXPERT_ACTIONS["discrete"])))
        assert torch.isfinite(reward).all()
        assert (reward >= 0).all()


# Whole update phases


def gail_scheme(data: Path, seed: int = 0, wrappers: Any = (), memory: Any = None, **changes: Any) -> prl.Scheme:
    sequences = prl.Sequences(4) if memory else None
    algorithm = {"discriminator_epochs": 2, "value_epochs": 2, "test_every": 48, "num_test_episodes": 1}
    return prl.Scheme(
        changes.pop("algorithm", prl.GAIL).create_factory(**algorithm),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        changes.pop("storage", None) or prl.GAEBuffer.create_factory(size=8, gae_lambda=0.9),
        changes.pop("envs", None)
        or prl.VecEnv.create_factory(
            "CartPole-v1", num_envs=2, wrappers=wrappers, env_kwargs={"max_episode_steps": changes.pop("longest", 30)}
        ),
        sources={"expert": prl.from_dataset(prl.PERBuffer.create_factory(size=80, sequences=sequences), data)},
        seed=seed,
        **changes,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "expert.npz")


def test_rewards_are_replaced_first_and_the_policy_learns_before_the_discriminator(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = gail_scheme(data)
    scheme.collect(16)
    algorithm, rollout = scheme.algorithm, scheme.storage
    assert isinstance(algorithm, prl.GAIL)
    held = rollout.get_all_buffer_data()
    assert (held[REW] == 1).all()
    with torch.no_grad():
        learnt_rewards = algorithm.reward(algorithm.read(held)).view(8, 2, 1)
        after_last = algorithm.value(algorithm.actor.view(rollout.get_data_slice(7, 8)[OBS2][0]))

    def check(event: str) -> None:
        if event == "discriminator":
            return
        stored = rollout.get_all_buffer_data()
        torch.testing.assert_close(stored[REW], learnt_rewards)
        # One episode runs through the rollout of each environment, so that its returns can be computed by hand.
        assert not stored[DONE][1:].any()
        value = numpy(stored[VAL])
        following = np.concatenate([value[1:], numpy(after_last)[None]])
        advantage = numpy(learnt_rewards) + 0.99 * following - value
        for step in reversed(range(7)):
            advantage[step] += 0.99 * 0.9 * advantage[step + 1]
        np.testing.assert_allclose(numpy(stored[ADV]), advantage, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(numpy(stored[RET]), advantage + value, rtol=1e-4, atol=1e-5)

    events = events_of(algorithm, monkeypatch, check)
    metrics = list(scheme.update())
    assert events == ["policy", "discriminator", "discriminator"]
    np.testing.assert_allclose(metrics[-1]["imitation_reward"], learnt_rewards.mean(), rtol=1e-5)


def test_steps_that_environments_skip_do_not_affect_the_discriminator(data: Path) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    storage = prl.GAEBuffer.create_factory(size=40, gae_lambda=0.9)
    scheme = gail_scheme(data, envs=envs, storage=storage)
    scheme.collect(160)
    algorithm: Any = scheme.algorithm
    played, shown = algorithm.all_of(scheme.storage), next(iter(scheme.sources["expert"].generate_batches(1, 16)))
    made = ~played[SKIPPED][..., 0].bool()
    assert 0 < (~made).sum() < 16
    # The same steps alone, as one axis.
    alone = {key: value[made] for key, value in played.items() if key not in (MASK, SKIPPED)}
    with torch.no_grad():
        losses = [
            algorithm.discriminator_loss(algorithm.read(batch), algorithm.read(shown))[0] for batch in (played, alone)
        ]
        mean_reward = algorithm.reward(algorithm.read(alone)).mean()
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(algorithm.replace_rewards(scheme.storage, played), mean_reward)


def test_names_of_the_version_before_work_with_a_warning(data: Path) -> None:
    with pytest.warns(DeprecationWarning, match="exported_reward"):

        class Doubled(prl.GAIL):
            def reward_to_keep(self, view: Any, action: torch.Tensor) -> torch.Tensor:
                return 2 * super().exported_reward(view, action)

    scheme = gail_scheme(data, algorithm=Doubled)
    scheme.collect(8)
    algorithm: Any = scheme.algorithm
    rows = algorithm.read(algorithm.all_of(scheme.storage))
    torch.testing.assert_close(
        algorithm.exported_reward(rows.now, rows.action), 2 * prl.GAIL.exported_reward(algorithm, rows.now, rows.action)
    )
    with pytest.warns(DeprecationWarning, match="replace_rewards"):
        assert algorithm.pay == algorithm.replace_rewards
    with pytest.warns(DeprecationWarning, match="mean_weights"):
        torch.testing.assert_close(rows.share, rows.mean_weights)
    with pytest.raises(AttributeError, match="no attribute 'paid'"):
        algorithm.paid  # noqa: B018


def test_the_environments_rewards_do_not_affect_training(data: Path) -> None:
    plain = train(gail_scheme(data, seed=2), 64)
    scaled = train(gail_scheme(data, seed=2, wrappers=[("ScaleReward", {"factor": 7.0})]), 64)
    assert_equal(plain.algorithm.state_dict(), scaled.algorithm.state_dict())


def test_training_does_not_change_the_experts_storage(data: Path) -> None:
    scheme = gail_scheme(data)
    before = scheme.sources["expert"].get_all_buffer_data()
    train(scheme, 48)
    assert_equal(scheme.sources["expert"].get_all_buffer_data(), before)
    assert len(scheme.sources["expert"]) == 60
