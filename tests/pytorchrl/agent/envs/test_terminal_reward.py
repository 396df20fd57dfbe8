"""TerminalReward rewards only termination and leaves observations and episode ends unchanged."""

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from tests.support.toys import Counter


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_only_the_terminating_step_is_rewarded(end: str) -> None:
    env = prl.TerminalReward(Counter(length=3, end=end))
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [reward for _, reward, *_ in steps] == [0.0, 0.0, float(end == "terminated")]
    assert [observation[0] for observation, *_ in steps] == [1, 2, 3]
    assert steps[-1][2:4] == (end == "terminated", end == "truncated")


def test_the_wrapper_can_be_given_by_name_and_does_not_change_reported_returns() -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, wrappers=["TerminalReward"])()
    envs.reset(seed=0)
    rewards = [envs.step(np.zeros((2, 1), np.int64)).reward.ravel().tolist() for _ in range(3)]
    assert rewards == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert [episode.episode_return for episode in envs.finished_episodes] == [6.0, 6.0]
    envs.close()


def test_goal_environments_are_refused() -> None:
    with pytest.raises(ValueError, match="would not be replaced; leave TerminalReward out"):
        prl.TerminalReward(gym.make("pytorchrl/BitFlipping-v0"))
