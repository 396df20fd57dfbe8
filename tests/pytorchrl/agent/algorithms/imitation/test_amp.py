"""AMP's discriminator and rewards equal those computed by hand, in the order of the paper's algorithm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages.transition import ACT, OBS, OBS2, REW, Batch
from tests.support.by_hand import (
    copies,
    envs_with,
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
from tests.support.training import train

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])


def small_amp(**hyper_parameters: Any) -> prl.AMP:
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(4,), activation="tanh")("cpu", envs)
    algorithm = prl.AMP.create_factory(**hyper_parameters)("cpu", actor, envs)
    perturb(actor, 1, 0.5)
    return algorithm


def played(seed: int = 8) -> Batch:
    return replayed(ACTIONS[::-1].copy(), seed)


class ByHand:
    """The discriminator in numpy; its layers can be changed in place."""

    def __init__(self, algorithm: prl.AMP) -> None:
        assert algorithm.discriminator.joint is not None
        (hidden,) = algorithm.discriminator.joint.layers
        self.hidden = [numpy(hidden.weight), numpy(hidden.bias)]  # type: ignore[arg-type]
        self.output = layer_of(algorithm.discriminator.head)

    def score(self, batch: Any) -> Any:
        units = np.tanh(linear(self.hidden, self.pairs(batch)))
        return linear(self.output, units)[:, 0]

    def slopes(self, batch: Any) -> Any:
        units = np.tanh(linear(self.hidden, self.pairs(batch)))
        return ((1 - units**2) * self.output[0]) @ self.hidden[0]

    @staticmethod
    def pairs(batch: Any) -> Any:
        return np.hstack([numpy(batch[OBS]), numpy(batch[OBS2])])


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_discriminators_update_equals_the_one_computed_by_hand(penalty: float) -> None:
    algorithm = small_amp(lr_discriminator=0.01, gradient_penalty_coef=penalty, optimizer=prl.SGD())
    policy_batch, expert_batch = played(), replayed(ACTIONS)
    before, policy = (copies(policy_batch), copies(expert_batch)), copies(algorithm.pi.state_dict())
    by_hand = ByHand(algorithm)

    def loss() -> Any:
        errors = ((by_hand.score(expert_batch) - 1) ** 2).mean() + ((by_hand.score(policy_batch) + 1) ** 2).mean()
        return errors + penalty / 2 * (by_hand.slopes(expert_batch) ** 2).sum(1).mean()

    expected = loss()
    right = ((by_hand.score(policy_batch) < 0).mean() + (by_hand.score(expert_batch) > 0).mean()) / 2
    layers = [*by_hand.hidden, *by_hand.output]
    expected_layers = [parameter - 0.01 * numeric_gradient(loss, parameter) for parameter in layers]
    metrics = algorithm.step_discriminator(policy_batch, expert_batch)
    np.testing.assert_allclose(metrics["discriminator_loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["discriminator_accuracy"], right, rtol=1e-6)
    after = ByHand(algorithm)
    for now, expected_layer in zip([*after.hidden, *after.output], expected_layers, strict=True):
        np.testing.assert_allclose(now, expected_layer, rtol=1e-4, atol=1e-6)
    assert_equal((policy_batch, expert_batch), before)
    assert_equal(algorithm.pi.state_dict(), policy)


def test_the_reward_is_the_weighted_sum_of_the_environments_and_that_of_the_style() -> None:
    algorithm = small_amp(task_coef=0.3, style_coef=2.0)
    with torch.no_grad():
        algorithm.discriminator.head.layer.weight.mul_(3)
        algorithm.discriminator.head.layer.bias.sub_(1)
    batch, by_hand = played(), ByHand(algorithm)
    style = np.maximum(0, 1 - 0.25 * (by_hand.score(batch) - 1) ** 2)
    assert 0 < (style == 0).sum() < len(style), "some scores are below -1"
    with torch.no_grad():
        reward = algorithm.reward(algorithm.read(batch))
    assert reward.shape == (6, 1)
    np.testing.assert_allclose(numpy(reward)[:, 0], 0.3 * numpy(batch[REW])[:, 0] + 2 * style, rtol=1e-4, atol=1e-6)


def test_actions_and_rewards_of_demonstrations_are_not_used() -> None:
    one, other = small_amp(), small_amp()
    other.load_state_dict(one.state_dict())
    expert_batch = replayed(ACTIONS)
    one.step_discriminator(played(), expert_batch)
    unlike = {ACT: torch.zeros(6, 1, dtype=torch.int64), REW: torch.full((6, 1), 7.0)}
    other.step_discriminator(played(), expert_batch | unlike)
    assert_equal(one.state_dict(), other.state_dict())


# Whole update phases


def amp_scheme(data: Path, seed: int = 0, memory: Any = None, **changes: Any) -> prl.Scheme:
    sequences = prl.Sequences(4) if memory else None
    settings: dict[str, Any] = {"discriminator_epochs": 2, "num_mini_batch": 1, "num_epochs": 1}
    settings |= {"test_every": 48, "num_test_episodes": 1} | changes.pop("settings", {})
    expert = changes.pop("expert", None) or prl.ReplayBuffer.create_factory(size=80, sequences=sequences)
    return prl.Scheme(
        prl.AMP.create_factory(**settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        changes.pop("storage", None) or prl.GAEBuffer.create_factory(size=8),
        changes.pop("envs", None)
        or prl.VecEnv.create_factory("CartPole-v1", num_envs=2, env_kwargs={"max_episode_steps": 30}),
        sources={"expert": prl.from_dataset(expert, data)},
        seed=seed,
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "expert.npz")


def test_rewards_are_computed_first_then_the_discriminator_and_the_policy_learn(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = amp_scheme(data)
    scheme.collect(16)
    algorithm: Any = scheme.algorithm
    held = scheme.storage.get_all_buffer_data()
    with torch.no_grad():
        rewards = algorithm.reward(algorithm.read(held)).view(8, 2, 1)

    def check(event: str) -> None:
        torch.testing.assert_close(scheme.storage.get_all_buffer_data()[REW], rewards)

    events = events_of(algorithm, monkeypatch, check)
    metrics = list(scheme.update())
    assert events == ["discriminator", "discriminator", "policy"]
    assert {"discriminator_loss", "discriminator_accuracy"} <= metrics[0].keys()
    np.testing.assert_allclose(metrics[-1]["imitation_reward"], rewards.mean(), rtol=1e-5)


def test_its_reward_of_successive_observations_is_no_reward_of_actions(data: Path, tmp_path: Path) -> None:
    learner = prl.Learner(amp_scheme(data), 32, tmp_path / "run")
    learner.run()
    learner.close()
    with pytest.raises(ValueError, match="is of AMP, which learns no reward of observations and actions; AIRL and"):
        prl.RewardFunction(str(tmp_path / "run"))


class Ring(gym.Env[Any, Any]):
    """Positions on a ring, seen one-hot; actions stay, or move by one, in either direction."""

    observation_space = spaces.Box(0, 1, (6,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, moves: tuple[int, ...] = (0, 1, -1)) -> None:
        self._moves = moves

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._position, self._steps = int(self.np_random.integers(6)), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._position, self._steps = (self._position + self._moves[action]) % 6, self._steps + 1
        return self._seen(), 0.0, False, self._steps == 20, {}

    def _seen(self) -> Any:
        return np.eye(6, dtype=np.float32)[self._position]


def always(action: int) -> Callable[[Any], Any]:
    return lambda seen: np.full((len(seen), 1), action)


@pytest.mark.long
def test_a_policy_moves_as_demonstrations_by_another_body_do(tmp_path: Path) -> None:
    # The demonstrator's action 1 moves on, which is the learner's action 2.
    envs = prl.VecEnv.create_factory(Ring)
    data = tmp_path / "shown.npz"
    collect_demonstrations(always(1), envs, path=data, steps=100)
    scheme = prl.Scheme(
        prl.AMP.create_factory(
            task_coef=0.0, style_coef=1.0, discriminator_epochs=20, lr=1e-2, gamma=0.5, test_every=0
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(32,)),
        prl.GAEBuffer.create_factory(size=32),
        prl.VecEnv.create_factory(Ring, num_envs=4, env_kwargs={"moves": (0, -1, 1)}),
        sources={"expert": prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), data)},
        seed=1,
    )
    train(scheme, 3_840)
    algorithm: Any = scheme.algorithm
    with torch.no_grad():
        probabilities = algorithm.pi(algorithm.actor.view(torch.eye(6))).probabilities
    assert (probabilities[:, 2] > 0.9).all()
