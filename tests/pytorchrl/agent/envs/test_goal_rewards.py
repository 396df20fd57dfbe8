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


class PlainTwice(gym.Wrapper[Any, Any, Any, Any]):
    """Changes rewards without being a RewardWrapper, or hiding the inner compute_reward."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, 2 * float(reward), *rest


class MovedGoals(gym.ObservationWrapper[Any, Any, Any]):
    """Changes the goals that are achieved, as a wrapper that scales observations does."""

    def observation(self, observation: Any) -> Any:
        return {**observation, "achieved_goal": 1 - observation["achieved_goal"]}


@pytest.mark.parametrize("wrapper", [PlainTwice, MovedGoals])
@pytest.mark.parametrize("n_step", [1, 3])
def test_rewards_that_differ_from_those_of_the_same_goals_are_named_in_one_warning(wrapper: Any, n_step: int) -> None:
    scheme = scheme_with([wrapper, ("TimeLimit", {"max_episode_steps": 3})], n_step=n_step)
    scheme.collect(100)
    paid = "-2" if wrapper is PlainTwice else r"-?\d"
    with pytest.warns(UserWarning, match=f"HERBuffer: the environments paid {paid} for a step, but compute_reward gi"):
        next(scheme.storage.generate_batches(1, 200))
    next(scheme.storage.generate_batches(1, 200))
    scheme.close()


class NextGoal(gym.Wrapper[Any, Any, Any, Any]):
    """Sets another goal once one is reached, and shows it in the same observation."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if reward == 0:
            observation = {**observation, "desired_goal": 1 - observation["achieved_goal"]}
        return observation, reward, *rest


def test_goals_that_change_within_an_episode_raise_no_warning() -> None:
    scheme = scheme_with([NextGoal, ("TimeLimit", {"max_episode_steps": 3})])
    scheme.collect(100)
    assert (scheme.storage.get_all_buffer_data()[REW] == 0).any()
    next(scheme.storage.generate_batches(1, 200))
    scheme.close()
