"""A reward that an imitation run has learnt replaces that of an environment, and is not trained any more."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from tests.support.compositions import ppo_scheme
from tests.support.data_sets import recorded


class PPOWithAIRLReward(prl.AIRLReward, prl.PPO):
    """AIRL on PPO."""


def imitation_run(
    folder: Path,
    cls: Any = prl.AIRL,
    env: str = "CartPole-v1",
    memory: Any = None,
    wrappers: Sequence[Any] = (),
    **settings: Any,
) -> str:
    sequences = prl.Sequences(4) if memory else None
    scheme = prl.Scheme(
        cls.create_factory(test_every=0, discriminator_epochs=2, **settings),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True, memory=memory),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory(env, num_envs=2, wrappers=wrappers),
        sources={
            "expert": prl.from_dataset(
                prl.ReplayBuffer.create_factory(size=80, sequences=sequences), recorded(folder / "expert.npz", env)
            )
        },
    )
    learner = prl.Learner(scheme, 64, folder / "imitation")
    assert learner.run()
    learner.close()
    return str(folder / "imitation")


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    ("cls", "settings"),
    [(prl.AIRL, {"reward_of": "state"}), (prl.AIRL, {}), (prl.GAIL, {}), (PPOWithAIRLReward, {})],
    ids=["AIRL of states", "AIRL", "GAIL", "AIRL on PPO"],
)
def test_rewards_of_the_environment_equal_the_outputs_of_the_learnt_networks(
    cls: Any, settings: Any, env: str, tmp_path: Path
) -> None:
    run = imitation_run(tmp_path, cls, env, **settings)
    algorithm: Any = prl.load_policy(run).algorithm
    wrapped = prl.LearntReward(run)(gym.make(env))
    plain = gym.make(env)
    observation, _ = wrapped.reset(seed=3)
    plain.reset(seed=3)
    wrapped.action_space.seed(3)
    for _ in range(5):
        action = wrapped.action_space.sample()
        stored = torch.as_tensor(np.reshape(action, (1, -1)))
        with torch.no_grad():
            view = algorithm.actor.view(torch.from_numpy(observation)[None])
            if cls is prl.GAIL:
                expected = -torch.log(1 - torch.sigmoid(algorithm.discriminator(view, stored)))
            elif algorithm.reward_of == "state":
                expected = algorithm.kept_reward(view)
            else:
                expected = algorithm.kept_reward(view, stored)
        observation, reward, terminated, truncated, _ = wrapped.step(action)
        np.testing.assert_allclose(reward, expected.item(), rtol=1e-4, atol=1e-6)
        own = plain.step(action)
        np.testing.assert_array_equal(observation, own[0])
        assert (terminated, truncated) == own[2:4]


def test_training_on_a_learnt_reward_logs_the_returns_of_the_environment(tmp_path: Path) -> None:
    run = imitation_run(tmp_path)
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, wrappers=[prl.LearntReward(run)])
    scheme = prl.Scheme(
        prl.A2C.create_factory(test_every=100, num_test_episodes=1),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=16),
        envs,
    )
    learner = prl.Learner(scheme, 200, tmp_path / "anew")
    learner.run()
    metrics = learner.get_metrics()
    learner.close()
    assert metrics["train/return"] == pytest.approx(round(metrics["train/return"]), abs=0.51)
    assert metrics["train/return"] > 5
    assert metrics["train/shaped_return"] != metrics["train/return"]
    # The composition is plain data: the run is resumed from its folder alone.
    assert prl.Learner.resume(tmp_path / "anew").done()


def test_the_wrapper_is_pickled_and_used_in_worker_processes(tmp_path: Path) -> None:
    wrapper = pickle.loads(pickle.dumps(prl.LearntReward(imitation_run(tmp_path))))
    envs = prl.VecEnv.create_factory("CartPole-v1", 2, wrappers=[wrapper], mode="async")()
    envs.reset(1)
    step = envs.step(np.zeros((2, 1), np.int64))
    envs.close()
    assert (step.reward != 1).all()


def counted_from_one(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformAction(env, lambda action: action - 1, spaces.Discrete(2, start=1))


def test_the_reward_function_takes_one_or_several_observations_and_actions(tmp_path: Path) -> None:
    run = imitation_run(tmp_path, reward_of="state-action", wrappers=[counted_from_one])
    function = prl.RewardFunction(run)
    one = function(np.zeros(4, np.float32), 2)
    several = function(np.zeros((2, 4), np.float32), [1, 2])
    assert one.shape == (1,)
    np.testing.assert_allclose(several[1], one[0], rtol=1e-5)
    algorithm: Any = prl.load_policy(run).algorithm
    with torch.no_grad():
        expected = algorithm.kept_reward(algorithm.actor.view(torch.zeros(2, 4)), torch.tensor([[0], [1]]))
    np.testing.assert_allclose(several, expected[:, 0], rtol=1e-5)
    assert several[0] != several[1]


def test_a_run_that_learns_no_reward_is_refused(tmp_path: Path) -> None:
    learner = prl.Learner(ppo_scheme(), 32, tmp_path / "ppo")
    learner.run()
    learner.close()
    with pytest.raises(ValueError, match="is of PPO, which learns no reward of observations and actions; AIRL and"):
        prl.LearntReward(str(tmp_path / "ppo"))(gym.make("CartPole-v1"))


@pytest.mark.long
def test_the_reward_of_a_recurrent_actor_is_refused(tmp_path: Path) -> None:
    run = imitation_run(tmp_path, memory="gru")
    with pytest.raises(ValueError, match="an actor with a memory"):
        prl.LearntReward(run)(gym.make("CartPole-v1"))


def test_environments_with_goals_are_refused(tmp_path: Path) -> None:
    run = imitation_run(tmp_path)
    with pytest.raises(ValueError, match="the environment has goals"):
        prl.LearntReward(run)(prl.BitFlipping(3))
