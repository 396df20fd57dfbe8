"""Rewards are divided by a running standard deviation, of returns or of themselves."""

from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import NormalizeReward
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pytorchrl as prl
from pytorchrl.scheme.reward_normalization import RewardNormalization
from storages.transition import REW
from tests.support.comparison import assert_equal
from tests.support.profiles import examples

Steps = tuple[NDArray[np.float32], NDArray[np.bool_]]


def some_steps(seed: int, steps: int, num_envs: int, scale: float = 1.0, shift: float = 0.0) -> Steps:
    """(T, E, 1) rewards and ends of episodes."""
    random = np.random.default_rng(seed)
    rewards = random.normal(shift, scale, (steps, num_envs, 1)).astype(np.float32)
    return rewards, random.random((steps, num_envs, 1)) < 0.1


def slow(kind: str, gamma: float, clip: float, rewards: Any, ended: Any) -> NDArray[np.float32]:
    """A slow reference: the deviation is computed again from all values at each step."""
    returns, seen, normalised = np.zeros(rewards.shape[1:]), [], []
    for reward, end in zip(rewards.astype(np.float64), ended, strict=True):
        returns = gamma * returns + reward
        seen.append(returns if kind == "returns" else reward)
        values = np.concatenate(seen)
        std = values.std() if np.ptp(values) > 0 else 1.0
        normalised.append(np.clip(reward / std, -clip, clip))
        returns = np.where(end, 0, returns)
    return np.array(normalised, np.float32)


@settings(max_examples=examples(100), deadline=None)
@given(
    kind=st.sampled_from(["rewards", "returns"]),
    gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]),
    num_envs=st.integers(1, 5),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    shift=st.sampled_from([0.0, -5.0]),
)
def test_rewards_are_divided_by_the_standard_deviation_of_all_values_so_far(
    kind: Literal["rewards", "returns"], gamma: float, num_envs: int, seed: int, scale: float, shift: float
) -> None:
    rewards, ended = some_steps(seed, 20, num_envs, scale, shift * scale)
    normalization = RewardNormalization(kind, gamma, num_envs, clip=3.0)
    normalised = [normalization(*step) for step in zip(rewards, ended, strict=True)]
    np.testing.assert_allclose(normalised, slow(kind, gamma, 3.0, rewards, ended), rtol=1e-4)
    assert {(array.dtype.name, array.shape) for array in normalised} == {("float32", (num_envs, 1))}


class Endless(gym.Env[Any, Any]):
    """An endless episode with given rewards."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, rewards: NDArray[np.float32]) -> None:
        self.rewards = rewards.ravel().tolist()

    def step(self, action: Any) -> Any:
        return 0, self.rewards.pop(0), False, False, {}


def test_returns_are_normalised_as_by_gymnasium_after_many_steps() -> None:
    rewards, _ = some_steps(0, 2000, 1, 20.0, 3.0)
    env = NormalizeReward(Endless(rewards), gamma=0.9)
    normalization, never = RewardNormalization("returns", 0.9, 1), np.zeros((1, 1), np.bool_)
    ours = [normalization(reward, never).item() for reward in rewards]
    theirs = [float(env.step(0)[1]) for _ in rewards]
    np.testing.assert_allclose(ours[500:], theirs[500:], rtol=1e-4)


@pytest.mark.parametrize("kind", ["rewards", "returns"])
@pytest.mark.parametrize("reward", [0.0, 0.1, -1e-7, 7.0, 1e7])
def test_equal_rewards_are_clipped_but_not_scaled(kind: Literal["rewards", "returns"], reward: float) -> None:
    normalization = RewardNormalization(kind, 0.0, 3)
    rewards, ended = np.full((3, 1), reward, np.float32), np.zeros((3, 1), np.bool_)
    for _ in range(200):
        np.testing.assert_array_equal(normalization(rewards, ended), np.clip(rewards, -10, 10))


def test_the_given_rewards_are_not_changed() -> None:
    rewards, ended = some_steps(3, 5, 2)
    before = rewards.copy()
    rewards.flags.writeable = ended.flags.writeable = False
    normalization = RewardNormalization("returns", 0.9, 2)
    results = [normalization(*step) for step in zip(rewards, ended, strict=True)]
    np.testing.assert_array_equal(rewards, before)
    assert not any(np.shares_memory(result, rewards) for result in results)


@pytest.mark.parametrize("kind", ["rewards", "returns"])
def test_a_loaded_normalisation_continues_as_the_saved_one(kind: Literal["rewards", "returns"]) -> None:
    rewards, ended = some_steps(4, 40, 3)
    one = RewardNormalization(kind, 0.9, 3)
    for step in zip(rewards[:20], ended[:20], strict=True):
        one(*step)
    state = one.state_dict()
    expected = [one(*step) for step in zip(rewards[20:], ended[20:], strict=True)]
    for _ in range(2):
        other = RewardNormalization(kind, 0.9, 3)
        other.load_state_dict(state)
        found = [other(*step) for step in zip(rewards[20:], ended[20:], strict=True)]
        np.testing.assert_array_equal(found, expected)
    assert_equal(other.state_dict(), one.state_dict())
    assert all(isinstance(value, int | torch.Tensor) for value in state.values())


def test_the_returns_of_lost_episodes_do_not_count_in_the_next_episodes() -> None:
    rewards, ended = some_steps(6, 30, 2)
    ended[10], ended[20] = True, [[True], [False]]
    with_ends, without_ends = RewardNormalization("returns", 0.9, 2), RewardNormalization("returns", 0.9, 2)
    for number, (reward, end) in enumerate(zip(rewards, ended, strict=True)):
        expected = with_ends(reward, end)
        found = without_ends(reward, np.zeros_like(end) if number in (10, 20) else end)
        np.testing.assert_array_equal(found, expected)
        if number in (10, 20):
            without_ends.begin_episodes(end)
    assert_equal(without_ends.state_dict(), with_ends.state_dict())


def test_a_state_of_another_number_of_environments_is_refused() -> None:
    state = RewardNormalization("returns", 0.9, 3).state_dict()
    with pytest.raises(ValueError, match="RewardNormalization: the saved returns are of 3 environments, there are 2"):
        RewardNormalization("returns", 0.9, 2).load_state_dict(state)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_reward_is_refused_and_changes_nothing(value: float) -> None:
    rewards, ended = some_steps(5, 3, 2)
    normalization = RewardNormalization("returns", 0.9, 2)
    normalization(rewards[0], ended[0])
    before = normalization.state_dict()
    rewards[1, 1] = value
    with pytest.raises(ValueError, match=f"RewardNormalization: the reward of environment 1 is {value}"):
        normalization(rewards[1], ended[1])
    assert_equal(normalization.state_dict(), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reward", 0.9, 1), "kind must be one of 'rewards', 'returns', got 'reward'"),
        (("returns", 1.1, 1), r"gamma must lie in \[0, 1\], got 1.1"),
        (("returns", 0.9, 0), "num_envs must be at least 1, got 0"),
        (("returns", 0.9, 1, 0.0), "clip must be greater than 0, got 0.0"),
    ],
)
def test_values_out_of_range_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"RewardNormalization: {message}"):
        RewardNormalization(*arguments)


def test_normalised_rewards_are_refused_with_hindsight_and_without_collecting() -> None:
    envs = prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0")
    dqn, actor = prl.DQN.create_factory(), prl.OffPolicyActor.create_factory()
    with pytest.raises(prl.CompositionError, match="HERBuffer computes the rewards of other goals"):
        prl.Scheme(dqn, actor, prl.HERBuffer.create_factory(size=50), envs, normalize_rewards="rewards")
    with pytest.raises(prl.CompositionError, match="there is no train_envs_factory; leave it out"):
        prl.Scheme(
            dqn, actor, prl.ReplayBuffer.create_factory(size=50), test_envs_factory=envs, normalize_rewards="rewards"
        )


@pytest.mark.parametrize("collection", [None, prl.Overlapped(max_policy_lag=0)])
def test_a_discount_that_is_changed_during_a_run_is_that_of_normalised_returns(
    collection: prl.Overlapped | None,
) -> None:
    def stored_rewards(gamma: float, changed_to: float) -> torch.Tensor:
        scheme = prl.Scheme(
            prl.DQN.create_factory(gamma=gamma, start_steps=1_000, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
            prl.ReplayBuffer.create_factory(size=50),
            prl.VecEnv.create_factory("CartPole-v1"),
            normalize_rewards="returns",
            collection=collection,
        )
        with scheme:
            scheme.algorithm.update_algorithm_parameter("gamma", changed_to)
            scheme.collect(30)
            return scheme.storage.get_all_buffer_data()[REW].clone()

    assert torch.equal(stored_rewards(0.99, changed_to=0.5), stored_rewards(0.5, changed_to=0.5))
    assert not torch.equal(stored_rewards(0.99, changed_to=0.5), stored_rewards(0.99, changed_to=0.99))
