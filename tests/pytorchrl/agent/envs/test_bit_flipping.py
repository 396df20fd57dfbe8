"""The bit-flipping environment, and compute_reward of goal environments."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pytorchrl as prl


def test_bit_flipping_passes_gymnasiums_environment_checker() -> None:
    check_env(prl.BitFlipping(5), skip_render_check=True)


def test_the_goal_is_reached_by_flipping_the_bits_that_differ() -> None:
    env = gym.make("pytorchrl/BitFlipping-v0", n=6)
    observation, _ = env.reset(seed=3)
    differing = np.flatnonzero(observation["achieved_goal"] != observation["desired_goal"])
    assert len(differing) > 1
    for count, bit in enumerate(differing, start=1):
        observation, reward, terminated, _, info = env.step(bit)
        there = count == len(differing)
        assert (reward, terminated, info["is_success"]) == (0.0 if there else -1.0, False, there)
    np.testing.assert_array_equal(observation["observation"], observation["desired_goal"])


def test_an_episode_has_as_many_steps_as_there_are_bits() -> None:
    env = prl.BitFlipping(4)
    env.reset(seed=0)
    assert [env.step(np.int64(0))[3] for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_of_goal_environments_computes_rewards_of_whole_batches(mode: Any) -> None:
    envs = prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0", 2, mode=mode, env_kwargs={"n": 3})()
    compute_reward = envs.compute_reward
    assert compute_reward is not None
    achieved, desired = np.eye(3, dtype=np.float32), np.tile(np.float32([1, 0, 0]), (3, 1))
    np.testing.assert_array_equal(compute_reward(achieved, desired, {}), [0, -1, -1])
    envs.close()


def test_environments_without_goals_have_no_compute_reward_and_her_refuses_them() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1")()
    assert envs.compute_reward is None
    envs.close()
    with pytest.raises(ValueError, match="HERBuffer: the environments have no compute_reward"):
        prl.Scheme(
            prl.DQN.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.HERBuffer.create_factory(size=100),
            prl.VecEnv.create_factory("CartPole-v1"),
        )
