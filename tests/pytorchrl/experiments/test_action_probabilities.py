"""A trained policy gives the probabilities with which it explores, for logs that later evaluations read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy
from storages.transition import LOGP
from tests.support.toys import Counter

OBSERVATIONS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def policy_of(algorithm: Any, env: Any, **actor: Any) -> TrainedPolicy:
    envs = prl.VecEnv.create_factory(env)()
    made = algorithm("cpu", prl.OffPolicyActor.create_factory(hidden_sizes=(8,), **actor)("cpu", envs), envs)
    envs.close()
    made.set_progress(100, 100)
    return TrainedPolicy(made)


@pytest.mark.parametrize(
    "algorithm",
    [
        prl.PPO.create_factory(),
        prl.SACDiscrete.create_factory(start_steps=50),
        prl.DQN.create_factory(start_steps=50, explorer=prl.EpsilonGreedy(0.3)),
        prl.DQN.create_factory(start_steps=50, explorer=prl.Boltzmann(0.5)),
    ],
    ids=["PPO", "SACDiscrete", "epsilon-greedy", "Boltzmann"],
)
def test_probabilities_of_discrete_actions_are_those_of_the_actions_drawn(algorithm: Any) -> None:
    policy = policy_of(algorithm, "CartPole-v1")
    observation = OBSERVATIONS[0]
    probability = np.exp([policy.log_probability(observation, action) for action in (0, 1)])
    assert probability.sum() == pytest.approx(1)
    drawn = policy(np.repeat(observation[None], 20_000, axis=0), deterministic=False, seed=0)
    assert np.mean(drawn) == pytest.approx(probability[1], abs=0.015)


def test_the_density_of_bounded_actions_integrates_to_1_in_the_environments_units() -> None:
    policy = policy_of(prl.SAC.create_factory(start_steps=50), "Pendulum-v1")
    grid = np.linspace(-2, 2, 20_003)[1:-1, None].astype(np.float32)
    densities = np.exp(policy.log_probability(np.full((len(grid), 3), 0.3, np.float32), grid))
    assert densities.shape == (20_001,)
    assert densities.mean() * 4 == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("memory", [None, "gru"])
def test_they_are_what_training_stores_with_a_memory_too(memory: str | None) -> None:
    policy = policy_of(prl.PPO.create_factory(), "CartPole-v1", memory=memory, **({"memory_size": 6} if memory else {}))
    algorithm = policy.algorithm
    rhs, done = algorithm.actor.initial_memory(5), torch.ones(5, 1)
    exploration = prl.Exploration(algorithm.codec, 5, "cpu", seed=0)
    for _ in range(3):
        acting = algorithm.acting_step(torch.from_numpy(OBSERVATIONS), rhs, done, exploration)
        policy(OBSERVATIONS)
        found = policy.log_probability(OBSERVATIONS, acting.env_action[:, 0].numpy())
        np.testing.assert_allclose(found, acting.fields[LOGP][:, 0].numpy(), rtol=1e-5)
        rhs, done = acting.rhs, torch.zeros(5, 1)
    if memory:
        with pytest.raises(ValueError, match="got observations of 2 environments, the memory is of 5"):
            policy.log_probability(OBSERVATIONS[:2], np.zeros(2, np.int64))


def test_actions_that_do_not_count_from_0_are_those_of_the_environment() -> None:
    policy = policy_of(
        prl.PPO.create_factory(), lambda: Counter("vector", length=5, actions=spaces.Discrete(3, start=4))
    )
    observation = policy.observation_space.sample()
    assert np.exp([policy.log_probability(observation, action) for action in (4, 5, 6)]).sum() == pytest.approx(1)
    with pytest.raises(ValueError, match=r"action must be one of Discrete\(3, start=4\), got 0"):
        policy.log_probability(observation, 0)


def test_masked_actions_have_no_probability() -> None:
    space = spaces.Dict({"state": spaces.Box(-1, 1, (2,)), "mask": spaces.MultiBinary(3)})

    class Masked(Counter):
        def __init__(self) -> None:
            super().__init__("vector", length=5, actions=spaces.Discrete(3))
            self.observation_space = space

    algorithm = prl.DQN.create_factory(start_steps=50, explorer=prl.EpsilonGreedy(0.4))
    policy = policy_of(algorithm, Masked, action_mask="mask")
    observation = {"state": np.zeros(2, np.float32), "mask": np.array([1, 0, 1], np.int8)}
    probability = np.exp([policy.log_probability(observation, action) for action in range(3)])
    assert (probability[1], sorted(probability.round(6))) == (0, [0, 0.2, 0.8])


class OwnAct(prl.PPO):
    """Chooses actions in its own way."""

    def act(self, view: Any, exploration: Any) -> Any:
        action, fields = super().act(view, exploration)
        return torch.zeros_like(action), fields


@pytest.mark.parametrize(
    ("algorithm", "env", "actor", "message"),
    [
        (prl.TD3.create_factory(start_steps=50), "Pendulum-v1", {}, "GaussianNoise.* gives no probabilities"),
        (prl.OptionCritic.create_factory(), "CartPole-v1", {}, "OptionCritic chooses actions in its own way; log"),
        (OwnAct.create_factory(), "CartPole-v1", {}, "OwnAct chooses actions in its own way"),
        (prl.DQN.create_factory(start_steps=50), "CartPole-v1", {"noisy": True}, "noise of networks chooses actions"),
        (prl.DQN.create_factory(start_steps=500), "CartPole-v1", {}, "UniformUntil.* gives no probabilities"),
    ],
)
def test_policies_without_known_probabilities_are_refused_with_the_way_out(
    algorithm: Any, env: str, actor: Any, message: str
) -> None:
    policy = policy_of(algorithm, env, **actor)
    with pytest.raises(NotImplementedError, match=message):
        policy.log_probability(policy.observation_space.sample(), policy.action_space.sample())


def test_asking_changes_neither_the_memory_nor_the_next_actions(finished: Callable[[str], Path]) -> None:
    asked, alone = (prl.load_policy(finished("ppo with memory")) for _ in range(2))
    observation = asked.observation_space.sample()
    for _ in range(4):
        action = asked(observation, deterministic=False, seed=0)
        assert asked.log_probability(observation, action) <= 0
        assert action == alone(observation, deterministic=False, seed=0)


def test_with_a_memory_the_probability_of_another_observation_is_refused(finished: Callable[[str], Path]) -> None:
    policy = prl.load_policy(finished("ppo with memory"))
    first, second = policy.observation_space.sample(), policy.observation_space.sample()
    action = policy(first, deterministic=False)
    assert policy.log_probability(first, action) <= 0
    with pytest.raises(ValueError, match="the memory is that of the observation which the policy acted on last"):
        policy.log_probability(second, action)
