"""The end of an episode is paid for, and nothing else; observations and ends stay as they are."""

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from tests.support.toys import Counter


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_the_step_that_terminates_an_episode_is_paid_for_alone(end: str) -> None:
    env = prl.TerminalReward(Counter(length=3, end=end))
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [reward for _, reward, *_ in steps] == [0.0, 0.0, float(end == "terminated")]
    assert [observation[0] for observation, *_ in steps] == [1, 2, 3]
    assert steps[-1][2:4] == (end == "terminated", end == "truncated")


def test_vector_environments_know_it_by_name_and_report_the_returns_of_the_environment() -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, wrappers=["TerminalReward"])()
    envs.reset(seed=0)
    rewards = [envs.step(np.zeros((2, 1), np.int64)).reward.ravel().tolist() for _ in range(3)]
    assert rewards == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert [episode.episode_return for episode in envs.finished_episodes] == [6.0, 6.0]
    envs.close()


def test_environments_with_goals_are_refused() -> None:
    with pytest.raises(ValueError, match="compute_reward would not be replaced"):
        prl.TerminalReward(gym.make("pytorchrl/BitFlipping-v0"))
