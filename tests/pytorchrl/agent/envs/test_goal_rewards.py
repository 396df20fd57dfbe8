"""Hindsight's rewards of other goals are those that the environments, with their wrappers, would have paid."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import OBS, OBS2, REW


class Twice(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


class TwiceForAnyGoal(Twice):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return 2 * self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info)


def always_right(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, first: Any, last: Any) -> Any:
    return None, None, None, None, np.zeros_like(rew)


def scheme_with(wrappers: list[Any], mode: Any = "sync", **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=1_000, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.HERBuffer.create_factory(size=100, **settings),
        prl.VecEnv.create_factory(prl.BitFlipping, 2, env_kwargs={"n": 3}, wrappers=wrappers, mode=mode),
    )


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "wrapper", [("ClipReward", {"min_reward": -0.5}), ("NormalizeReward", {}), Twice], ids=["clip", "normalise", "own"]
)
def test_wrappers_that_change_rewards_but_not_those_of_other_goals_are_refused(wrapper: Any, mode: Any) -> None:
    name = wrapper.__name__ if isinstance(wrapper, type) else wrapper[0]
    with pytest.raises(ValueError, match=f"VecEnv: the wrapper {name} changes rewards, but not compute_reward"):
        scheme_with([wrapper, ("TimeLimit", {"max_episode_steps": 3})], mode)


def test_a_wrapper_with_a_compute_reward_of_its_own_changes_all_rewards() -> None:
    scheme = scheme_with([TwiceForAnyGoal, ("TimeLimit", {"max_episode_steps": 3})])
    scheme.collect(100)
    batch = next(scheme.storage.generate_batches(1, 200))
    reached = (batch[OBS2]["achieved_goal"] == batch[OBS]["desired_goal"]).all(dim=1, keepdim=True)
    assert 0 < reached.sum() < 200
    assert (batch[REW] == -2.0 * ~reached).all()
    scheme.close()


def test_rewards_of_a_her_function_go_with_any_wrapper() -> None:
    scheme = scheme_with([Twice], her_function=always_right, her_ratio=1.0)
    scheme.collect(20)
    assert (next(scheme.storage.generate_batches(1, 50))[REW] == 0).all()
    scheme.close()


def test_wrappers_that_leave_rewards_alone_are_accepted() -> None:
    envs = prl.VecEnv.create_factory(prl.BitFlipping, wrappers=[("TimeLimit", {"max_episode_steps": 3})])()
    assert isinstance(envs.observation_space, spaces.Dict)
    assert envs.compute_reward is not None
    envs.close()
