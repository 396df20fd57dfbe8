"""ScaleReward multiplies rewards and leaves observations and episode ends unchanged."""

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs import ScaleReward


def test_rewards_are_scaled_but_observations_and_episode_ends_are_not() -> None:
    plain, scaled = gym.make("Pendulum-v1"), ScaleReward(gym.make("Pendulum-v1"), 0.5)
    assert np.array_equal(plain.reset(seed=3)[0], scaled.reset(seed=3)[0])
    action = np.ones(1, np.float32)
    for _ in range(200):
        observation, reward, terminated, truncated, _ = plain.step(action)
        found = scaled.step(action)
        assert np.array_equal(found[0], observation)
        assert found[1] == pytest.approx(0.5 * float(reward))
        assert found[2:4] == (terminated, truncated)
    assert truncated


def test_the_wrapper_can_be_given_by_name() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, wrappers=[("ScaleReward", {"factor": 0.25})])()
    envs.reset(seed=0)
    assert envs.step(np.zeros((2, 1), np.int64)).reward.tolist() == [[0.25], [0.25]]
    envs.close()


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_a_factor_that_is_not_positive_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="factor must be above 0, got"):
        ScaleReward(gym.make("CartPole-v1"), factor)


def test_goal_environments_are_refused() -> None:
    with pytest.raises(ValueError, match="would not be scaled; leave ScaleReward out"):
        ScaleReward(gym.make("pytorchrl/BitFlipping-v0"), 0.1)
