"""Lambda returns, Retrace and average-reward advantages equal loops over their definitions, for all kinds of ends."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    AverageRewardBuffer,
    GAEBuffer,
    LambdaReturnBuffer,
    RetraceBuffer,
    SampleError,
    VanillaOnPolicyBuffer,
    VTraceBuffer,
)
from storages.on_policy.estimators import Estimator, RewardStream
from storages.transition import ACT, ADV, DONE, DONE2, IREW, IVAL, LOGP, OBS, OBS2, RET, REW, SKIPPED, TRUNC2, VAL
from tests.support.comparison import assert_equal
from tests.support.model import through_a_file
from tests.support.profiles import examples

GAMMA = 0.9


class Actor:
    """Gives observation x the value 2 x and its action a the value x + a; takes action 1 with a given probability."""

    def __init__(self, of_one: float = 0.5) -> None:
        self.of_one = of_one

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        assert not done.any()
        return 2 * obs

    def log_probs(self, action: Any) -> Any:
        return np.log(np.where(action == 1, self.of_one, 1 - self.of_one)).astype(np.float32)

    def evaluate_action_values(self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor) -> Any:
        return torch.from_numpy(self.log_probs(action.numpy())), obs + action, 2 * obs


def rollout_of(seed: int, steps: int, num_envs: int, acted: Actor, interrupts: bool = False) -> list[dict[str, Any]]:
    """Steps with random terminations and truncations; with ``interrupts``, some episodes also stop without a flag."""
    draw, found = np.random.default_rng(seed), []
    number = lambda: draw.normal(size=(num_envs, 1)).astype(np.float32)  # noqa: E731
    obs, done = number(), np.ones((num_envs, 1), bool)
    for _ in range(steps):
        action, following = draw.integers(0, 2, (num_envs, 1)), number()
        terminated, truncated = (draw.random((num_envs, 1)) < 0.2 for _ in range(2))
        found.append(
            {
                OBS: obs,
                DONE: done,
                ACT: action,
                REW: number(),
                OBS2: following,
                DONE2: terminated,
                TRUNC2: truncated,
                VAL: 2 * obs,
                LOGP: acted.log_probs(action),
            }
        )
        interrupted = (draw.random((num_envs, 1)) < 0.1) & interrupts
        done = terminated | truncated
        obs = np.where(done | interrupted, number(), following)
    return found


def made(cls: Any, size: int, actor: Any = None, **given: Any) -> Any:
    return cls.create_factory(size=size, **given)("cpu", actor or Actor(), SimpleNamespace(gamma=GAMMA), None)


def filled(storage: Any, steps: list[dict[str, Any]]) -> Any:
    for step in steps:
        storage.insert_transition(step)
    storage.before_gradients()
    return storage.get_all_buffer_data()


def last(steps: list[dict[str, Any]], t: int, env: int) -> bool:
    """Whether the next row does not continue a transition."""
    ended = steps[t][DONE2][env, 0] or steps[t][TRUNC2][env, 0]
    return bool(t == len(steps) - 1 or ended or steps[t + 1][OBS][env, 0] != steps[t][OBS2][env, 0])


def value_after(steps: list[dict[str, Any]], t: int, env: int) -> float:
    """The value after a step: 0 if the environment terminated, otherwise that of the next observation."""
    return 0.0 if steps[t][DONE2][env, 0] else 2 * float(steps[t][OBS2][env, 0])


def assert_close(data: Any, key: str, t: int, env: int, number: float) -> None:
    assert data[key][t, env, 0].item() == pytest.approx(number, rel=1e-4, abs=1e-4), (key, t, env)


ROLLOUTS = given(
    seed=st.integers(0, 10_000),
    num_steps=st.integers(1, 14),
    num_envs=st.integers(1, 3),
    weight=st.sampled_from([0.0, 0.6, 1.0]),
    interrupts=st.booleans(),
)


@ROLLOUTS
@settings(max_examples=examples(80), deadline=None)
def test_lambda_returns_equal_their_recursive_definition(
    seed: int, num_steps: int, num_envs: int, weight: float, interrupts: bool
) -> None:
    steps = rollout_of(seed, num_steps, num_envs, Actor(), interrupts)
    data = filled(made(LambdaReturnBuffer, num_steps, trace_lambda=weight), steps)
    for env in range(num_envs):
        following = 0.0
        for t in reversed(range(num_steps)):
            value = value_after(steps, t, env)
            after = value if last(steps, t, env) else following
            following = float(steps[t][REW][env, 0]) + GAMMA * ((1 - weight) * value + weight * after)
            assert_close(data, RET, t, env, following)
            assert_close(data, ADV, t, env, following - float(steps[t][VAL][env, 0]))
    same = filled(made(GAEBuffer, num_steps, gae_lambda=weight), steps)
    torch.testing.assert_close(data[RET], same[RET], rtol=1e-4, atol=1e-4)


@ROLLOUTS
@settings(max_examples=examples(80), deadline=None)
def test_retrace_targets_equal_their_recursive_definition(
    seed: int, num_steps: int, num_envs: int, weight: float, interrupts: bool
) -> None:
    acted, now = Actor(0.4), Actor(0.7)
    steps = rollout_of(seed, num_steps, num_envs, acted, interrupts)
    # Values of the policy that acted are not needed.
    given = [{key: value for key, value in step.items() if key != VAL} for step in steps]
    data = filled(made(RetraceBuffer, num_steps, now, trace_lambda=weight), given)
    for env in range(num_envs):
        correction = 0.0
        for t in reversed(range(num_steps)):
            obs, action = float(steps[t][OBS][env, 0]), int(steps[t][ACT][env, 0])
            rest = 0.0 if last(steps, t, env) else correction
            target = float(steps[t][REW][env, 0]) + GAMMA * (value_after(steps, t, env) + rest)
            ratio = (0.7 if action else 0.3) / (0.4 if action else 0.6)
            correction = weight * min(1.0, ratio) * (target - (obs + action))
            assert_close(data, RET, t, env, target)
            assert_close(data, ADV, t, env, target - 2 * obs)


@ROLLOUTS
@settings(max_examples=examples(80), deadline=None)
def test_average_reward_advantages_are_sums_of_differential_errors(
    seed: int, num_steps: int, num_envs: int, weight: float, interrupts: bool
) -> None:
    storage, average = made(AverageRewardBuffer, num_steps, gae_lambda=weight, average_step_size=0.25), None
    for phase in range(3):
        steps = rollout_of(seed + phase, num_steps, num_envs, Actor(), interrupts)
        data = filled(storage, steps)
        # A second call for the same rollout does not count it again.
        storage.before_gradients()
        mean = float(np.mean([step[REW] for step in steps]))
        average = mean if average is None else 0.75 * average + 0.25 * mean
        for env in range(num_envs):
            following = 0.0
            for t in reversed(range(num_steps)):
                value = float(steps[t][VAL][env, 0])
                error = float(steps[t][REW][env, 0]) - average + value_after(steps, t, env) - value
                following = error + (0.0 if last(steps, t, env) else weight * following)
                assert_close(data, ADV, t, env, following)
                assert_close(data, RET, t, env, following + value)
        assert storage.average.current == pytest.approx(average, rel=1e-5, abs=1e-6)
        state = through_a_file(storage.state_dict())
        restored = made(AverageRewardBuffer, num_steps, gae_lambda=weight, average_step_size=0.25)
        restored.load_state_dict(state)
        restored.before_gradients()
        assert_equal(restored.get_all_buffer_data(), storage.get_all_buffer_data())
        storage = restored
        storage.reset()


def test_a_constant_reward_has_average_reward_advantages_of_zero() -> None:
    steps = rollout_of(0, 20, 2, Actor())
    same = {REW: np.full((2, 1), 3, np.float32)} | {key: np.zeros((2, 1), bool) for key in (DONE, DONE2, TRUNC2)}
    for step in steps:
        step |= same | {key: np.ones((2, 1), np.float32) for key in (OBS, OBS2)} | {VAL: np.full((2, 1), 2.0)}
    data = filled(made(AverageRewardBuffer, 20), steps)
    torch.testing.assert_close(data[ADV], torch.zeros(20, 2, 1))


def test_a_rollout_of_skipped_steps_alone_leaves_the_average_reward_as_it_was() -> None:
    storage, averages = made(AverageRewardBuffer, 1), []
    for phase, (step,) in enumerate(rollout_of(seed, 1, 1, Actor()) for seed in range(3)):
        skipped = np.full((1, 1), phase == 1)
        flags = {SKIPPED: skipped, DONE: step[DONE] | skipped, DONE2: skipped & False, TRUNC2: skipped}
        data = filled(storage, [step | flags | {REW: np.full((1, 1), 1 + 2 * phase, np.float32)}])
        averages.append(storage.average.current)
        assert torch.isfinite(data[ADV]).all()
        assert len(list(storage.generate_batches(1))) == (phase != 1)
        storage.reset()
    assert averages == [1.0, 1.0, 5.0]


def test_a_changed_hyper_parameter_applies_to_the_next_returns() -> None:
    steps = rollout_of(0, 8, 2, Actor())
    storage = made(LambdaReturnBuffer, 8, trace_lambda=0.2)
    before = filled(storage, steps)[RET]
    storage.update_storage_parameter("trace_lambda", 0.9)
    storage.before_gradients()
    after = storage.get_all_buffer_data()[RET]
    assert not torch.equal(before, after)
    assert_equal(after, filled(made(LambdaReturnBuffer, 8, trace_lambda=0.9), steps)[RET])


def test_missing_fields_and_actor_methods_raise_errors_that_name_them() -> None:
    with pytest.raises(ValueError, match="RetraceBuffer: SimpleNamespace has no evaluate_action_values"):
        made(RetraceBuffer, 4, SimpleNamespace(value=None))
    (step,) = rollout_of(0, 1, 1, Actor())
    for cls, key in ((RetraceBuffer, LOGP), (LambdaReturnBuffer, VAL), (AverageRewardBuffer, VAL), (VTraceBuffer, VAL)):
        with pytest.raises(SampleError, match=f"{cls.__name__}: .*sample needs {key}"):
            made(cls, 4).insert_transition({name: value for name, value in step.items() if name != key})


@pytest.mark.parametrize("cls", [AverageRewardBuffer, RetraceBuffer])
def test_intrinsic_rewards_are_stored_without_intrinsic_returns(cls: Any) -> None:
    algorithm = SimpleNamespace(gamma=GAMMA, intrinsic_gamma=GAMMA, intrinsic_returns_end=True)
    storage = cls.create_factory(size=3)("cpu", Actor(), algorithm, None)
    for step in rollout_of(0, 3, 1, Actor()):
        storage.insert_transition(step | {key: np.ones((1, 1), np.float32) for key in (IREW, IVAL)})
    storage.before_gradients()
    data = storage.get_all_buffer_data()
    assert {IREW, RET, ADV} <= data.keys()
    assert "IntrinsicReturn" not in data


class Myopic(Estimator):
    """Returns that are the reward of the step alone."""

    def estimate(self, stream: RewardStream, returns: Any, advantages: Any) -> None:
        returns[:] = stream.rewards
        advantages[:] = stream.rewards - stream.values


class MyopicBuffer(VanillaOnPolicyBuffer):
    def make_estimator(self) -> Estimator:
        return Myopic()


def test_a_user_defined_estimator_computes_the_returns() -> None:
    steps = rollout_of(0, 5, 2, Actor())
    data = filled(made(MyopicBuffer, 5), steps)
    assert_equal(data[RET], torch.from_numpy(np.stack([step[REW] for step in steps])))
