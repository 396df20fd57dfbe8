"""Compiled returns and advantages equal plain loops, and closed forms if they exist."""

import numpy as np
import pytest
from numpy.typing import NDArray

from storages.core.kernels.returns import generalized_advantages, lambda_returns

GAMMA, LAMBDA = 0.97, 0.9
Arrays = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]


def rollout(steps: int, num_envs: int, seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    rewards, values, next_values = generator.normal(size=(3, steps, num_envs)).astype(np.float32)
    return rewards, values, next_values, generator.random((steps, num_envs)) < 0.2


def slow_return(arrays: Arrays, t: int, env: int) -> float:
    rewards, _, next_values, ends = arrays
    total, factor = 0.0, 1.0
    for later in range(t, len(rewards)):
        total += factor * rewards[later, env]
        factor *= GAMMA
        if ends[later, env] or later == len(rewards) - 1:
            return total + factor * next_values[later, env]
    raise AssertionError


def slow_advantage(arrays: Arrays, t: int, env: int, gae_lambda: float) -> float:
    """The sum of equation 16, term by term."""
    rewards, values, next_values, ends = arrays
    total = 0.0
    for later in range(t, len(rewards)):
        error = rewards[later, env] + GAMMA * next_values[later, env] - values[later, env]
        total += (GAMMA * gae_lambda) ** (later - t) * error
        if ends[later, env]:
            break
    return total


@pytest.mark.parametrize(("steps", "num_envs"), [(1, 1), (1, 4), (7, 1), (40, 5)])
def test_kernels_equal_plain_loops(steps: int, num_envs: int) -> None:
    arrays = rollout(steps, num_envs)
    rewards, values, next_values, ends = arrays
    returns, advantages = np.empty((2, steps, num_envs), np.float32)
    lambda_returns(rewards, next_values, ends, GAMMA, 1.0, returns)
    generalized_advantages(rewards, values, next_values, ends, GAMMA, LAMBDA, advantages)
    for t in range(steps):
        for env in range(num_envs):
            assert returns[t, env] == pytest.approx(slow_return(arrays, t, env), rel=1e-5, abs=1e-5)
            assert advantages[t, env] == pytest.approx(slow_advantage(arrays, t, env, LAMBDA), rel=1e-5, abs=1e-5)


def test_a_constant_reward_of_one_has_the_value_one_over_one_minus_gamma() -> None:
    worth = 1 / (1 - GAMMA)
    rewards, values = np.ones((50, 3), np.float32), np.full((50, 3), worth, np.float32)
    ends = np.zeros((50, 3), bool)
    returns, advantages = np.empty((2, 50, 3), np.float32)
    lambda_returns(rewards, values, ends, GAMMA, 1.0, returns)
    generalized_advantages(rewards, values, values, ends, GAMMA, LAMBDA, advantages)
    np.testing.assert_allclose(returns, worth, rtol=1e-6)
    np.testing.assert_allclose(advantages, 0, atol=1e-4)


def test_lambda_zero_gives_the_one_step_error_and_lambda_one_the_whole_return() -> None:
    rewards, values, _, ends = rollout(30, 4)
    next_values = np.concatenate([values[1:], rollout(1, 4, seed=1)[1]])
    returns, advantages = np.empty((2, 30, 4), np.float32)
    generalized_advantages(rewards, values, next_values, ends, GAMMA, 0.0, advantages)
    np.testing.assert_allclose(advantages, rewards + GAMMA * next_values - values, rtol=1e-4, atol=1e-5)
    generalized_advantages(rewards, values, next_values, ends, GAMMA, 1.0, advantages)
    lambda_returns(rewards, next_values, ends, GAMMA, 1.0, returns)
    np.testing.assert_allclose(advantages, returns - values, rtol=1e-4, atol=1e-4)


def test_long_sums_of_small_rewards_keep_their_precision() -> None:
    rewards = np.full((100_000, 1), 0.1, np.float32)
    returns = np.empty_like(rewards)
    lambda_returns(rewards, np.zeros_like(rewards), np.zeros(rewards.shape, bool), 1.0, 1.0, returns)
    np.testing.assert_allclose(returns[0, 0], 100_000 * np.float64(np.float32(0.1)), rtol=1e-7)
