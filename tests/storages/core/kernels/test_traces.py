"""V-trace, Retrace and lambda returns equal their definitions, summed term by term."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages.core.kernels.returns import generalized_advantages, lambda_returns, retrace, vtrace
from tests.support.profiles import examples

GAMMA = 0.95


class Rollout:
    """Random arrays; each next value is the value of the next row unless an episode ends between them."""

    def __init__(self, steps: int, num_envs: int, seed: int, dtype: type = np.float32) -> None:
        draw = np.random.default_rng(seed)
        shape = (steps, num_envs)
        self.steps, self.num_envs = shape
        self.rewards, self.values, self.action_values = (draw.normal(size=shape).astype(dtype) for _ in range(3))
        self.ends = draw.random(shape) < 0.25
        self.next_values = draw.normal(size=shape).astype(dtype)
        self.next_values[:-1] = np.where(self.ends[:-1], self.next_values[:-1], self.values[1:])
        self.next_values[self.ends & (draw.random(shape) < 0.5)] = 0  # terminated
        self.ratios = np.exp(draw.normal(size=shape)).astype(dtype)

    def last(self, t: int, e: int) -> bool:
        return bool(t == self.steps - 1 or self.ends[t, e])


rollouts = st.builds(
    Rollout,
    steps=st.integers(1, 12),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from([np.float32, np.float64]),
)


@given(
    rollout=rollouts,
    rho_bar=st.sampled_from([0.5, 1.0, 2.0]),
    c_bar=st.sampled_from([0.5, 1.0, 2.0]),
    trace_lambda=st.sampled_from([0.0, 0.7, 1.0]),
)
@settings(max_examples=examples(60), deadline=None)
def test_vtrace_equals_the_sum_of_its_definition(
    rollout: Rollout, rho_bar: float, c_bar: float, trace_lambda: float
) -> None:
    r = rollout
    targets, advantages = np.empty_like(r.rewards), np.empty_like(r.rewards)
    arguments = (r.rewards, r.values, r.next_values, r.ends, r.ratios, GAMMA, rho_bar, c_bar, trace_lambda)
    vtrace(*arguments, targets, advantages)
    rho, c = np.minimum(rho_bar, r.ratios), trace_lambda * np.minimum(c_bar, r.ratios)
    for e in range(r.num_envs):
        expected = np.empty(r.steps)
        for t in range(r.steps):
            total, product = float(r.values[t, e]), 1.0
            for later in range(t, r.steps):
                error = r.rewards[later, e] + GAMMA * r.next_values[later, e] - r.values[later, e]
                total += product * rho[later, e] * error
                product *= GAMMA * c[later, e]
                if r.ends[later, e]:
                    break
            expected[t] = total
        np.testing.assert_allclose(targets[:, e], expected, rtol=2e-4, atol=2e-4)
        for t in range(r.steps):
            following = r.next_values[t, e] if r.last(t, e) else expected[t + 1]
            advantage = rho[t, e] * (r.rewards[t, e] + GAMMA * following - r.values[t, e])
            assert advantages[t, e] == pytest.approx(advantage, rel=1e-3, abs=1e-3)


@given(rollout=rollouts, trace_lambda=st.sampled_from([0.0, 0.7, 1.0]))
@settings(max_examples=examples(60), deadline=None)
def test_retrace_equals_the_sum_of_its_definition(rollout: Rollout, trace_lambda: float) -> None:
    r = rollout
    targets = np.empty_like(r.rewards)
    retrace(r.rewards, r.action_values, r.next_values, r.ends, r.ratios, GAMMA, trace_lambda, targets)
    c = trace_lambda * np.minimum(1.0, r.ratios)
    for e in range(r.num_envs):
        for t in range(r.steps):
            # Equation 3: Q plus the discounted, traced sum of its errors.
            total, product = float(r.action_values[t, e]), 1.0
            for later in range(t, r.steps):
                if later > t:
                    product *= GAMMA * c[later, e]
                error = r.rewards[later, e] + GAMMA * r.next_values[later, e] - r.action_values[later, e]
                total += product * error
                if r.ends[later, e]:
                    break
            assert targets[t, e] == pytest.approx(total, rel=1e-3, abs=1e-3)


@given(rollout=rollouts, trace_lambda=st.sampled_from([0.0, 0.7, 1.0]))
@settings(max_examples=examples(60), deadline=None)
def test_lambda_returns_are_the_weighted_mean_of_n_step_returns(rollout: Rollout, trace_lambda: float) -> None:
    r = rollout
    returns = np.empty_like(r.rewards)
    lambda_returns(r.rewards, r.next_values, r.ends, GAMMA, trace_lambda, returns)
    for e in range(r.num_envs):
        for t in range(r.steps):
            n_step, summed, factor, n = [], 0.0, 1.0, t
            while True:
                summed += factor * r.rewards[n, e]
                factor *= GAMMA
                n_step.append(summed + factor * r.next_values[n, e])
                if r.last(n, e):
                    break
                n += 1
            weights = [(1 - trace_lambda) * trace_lambda**k for k in range(len(n_step) - 1)]
            weights.append(1 - sum(weights))
            assert returns[t, e] == pytest.approx(np.dot(weights, n_step), rel=1e-3, abs=1e-3)


def test_long_sums_of_small_rewards_keep_their_precision() -> None:
    rewards = np.full((100_000, 1), 0.1, np.float32)
    returns = np.empty_like(rewards)
    lambda_returns(rewards, np.zeros_like(rewards), np.zeros(rewards.shape, bool), 1.0, 1.0, returns)
    np.testing.assert_allclose(returns[0, 0], 100_000 * np.float64(np.float32(0.1)), rtol=1e-7)


@pytest.mark.parametrize("trace_lambda", [0.0, 0.9, 1.0])
def test_on_policy_lambda_returns_retrace_and_vtrace_equal_gae(trace_lambda: float) -> None:
    r = Rollout(40, 3, seed=1, dtype=np.float64)
    ones, (returns, others, targets, advantages, gae) = np.ones_like(r.rewards), np.empty((5, *r.rewards.shape))
    lambda_returns(r.rewards, r.next_values, r.ends, GAMMA, trace_lambda, returns)
    # With V in place of Q, Retrace uses the same values.
    retrace(r.rewards, r.values, r.next_values, r.ends, ones, GAMMA, trace_lambda, others)
    vtrace(r.rewards, r.values, r.next_values, r.ends, ones, GAMMA, 1.0, 1.0, trace_lambda, targets, advantages)
    generalized_advantages(r.rewards, r.values, r.next_values, r.ends, GAMMA, trace_lambda, gae)
    for found in (returns, others, targets):
        np.testing.assert_allclose(found, r.values + gae)


def test_a_constant_reward_of_one_has_the_value_one_over_one_minus_gamma() -> None:
    worth, ones = 1 / (1 - GAMMA), np.ones((30, 2))
    values, ends, ratios = np.full((30, 2), worth), np.zeros((30, 2), bool), np.full((30, 2), 0.3)
    targets, advantages, others, returns = np.empty((4, 30, 2))
    vtrace(ones, values, values, ends, ratios, GAMMA, 1.0, 1.0, 1.0, targets, advantages)
    retrace(ones, values, values, ends, ratios, GAMMA, 0.9, others)
    lambda_returns(ones, values, ends, GAMMA, 0.9, returns)
    for found in (targets, others, returns):
        np.testing.assert_allclose(found, worth)
    np.testing.assert_allclose(advantages, 0, atol=1e-9)
