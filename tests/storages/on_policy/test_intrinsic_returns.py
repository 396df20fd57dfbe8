"""Intrinsic rewards have separate returns and advantages, which optionally continue across the ends of episodes."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import GAEBuffer, VanillaOnPolicyBuffer
from storages.transition import (
    ADV,
    DONE,
    DONE2,
    IADV,
    IRET,
    IREW,
    IVAL,
    LOGP,
    OBS,
    OBS2,
    RET,
    REW,
    RHS,
    RHS2,
    TRUNC2,
    VAL,
)
from tests.support.model import KINDS, Sample, Stream, map_leaves
from tests.support.profiles import examples
from tests.support.rollouts import SummingActor, expected, goes_on, summed

GAMMA, INTRINSIC_GAMMA = 0.9, 0.7


class CuriousActor(SummingActor):
    """Its intrinsic value of an observation is twice its value."""

    def intrinsic_value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        return 2 * self.value(obs, rhs, done)


def buffer(cls: Any, size: int, *, ends: bool, asked_for: Iterable[str] = (), **hyper_parameters: Any) -> Any:
    algorithm = SimpleNamespace(
        gamma=GAMMA,
        intrinsic_gamma=INTRINSIC_GAMMA,
        intrinsic_returns_end=ends,
        values_when_full=frozenset(asked_for),
    )
    storage = cls.create_factory(size=size, **hyper_parameters)("cpu", CuriousActor(), algorithm, None)
    storage.seed(0)
    return storage


def valued(sample: Sample, number: int) -> Sample:
    seen = {key: value for key, value in sample.items() if key in (OBS, RHS)}
    own = np.arange(len(sample[DONE]), dtype=np.float32)[:, None]
    intrinsic = {IREW: 1 + own + number % 3, IVAL: 2 * summed(seen)}
    return sample | {VAL: summed(seen), LOGP: own + 100 * number, **intrinsic}


def following_value(steps: list[Sample], t: int, env: int, ends: bool) -> tuple[float, bool]:
    """The value after a transition, and whether the sum of rewards stops there."""
    sample, last = steps[t], t == len(steps) - 1
    over = bool(sample[DONE2][env, 0] or sample.get(TRUNC2, sample[DONE2])[env, 0])
    if over and not ends and not last:
        return float(steps[t + 1][IVAL][env, 0]), False
    broken = last or not goes_on(sample, steps[t + 1], env)
    if sample[DONE2][env, 0] and ends:
        return 0.0, True
    seen = {OBS: sample[OBS2]} | ({RHS: sample[RHS2]} if RHS2 in sample else {})
    return 2 * float(summed(seen)[env, 0]), broken


def intrinsic_by_hand(steps: list[Sample], t: int, env: int, ends: bool, gae_lambda: float | None) -> dict[str, float]:
    value, factor, total = float(steps[t][IVAL][env, 0]), 1.0, 0.0
    for later in range(t, len(steps)):
        reward, (rest, broken) = float(steps[later][IREW][env, 0]), following_value(steps, later, env, ends)
        if gae_lambda is None:
            total += factor * (reward + (INTRINSIC_GAMMA * rest if broken else 0.0))
            factor *= INTRINSIC_GAMMA
        else:
            total += factor * (reward + INTRINSIC_GAMMA * rest - float(steps[later][IVAL][env, 0]))
            factor *= INTRINSIC_GAMMA * gae_lambda
        if broken:
            break
    return {IRET: total, IADV: total - value} if gae_lambda is None else {IRET: total + value, IADV: total}


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    size=st.integers(1, 8),
    num_envs=st.integers(1, 3),
    kind=st.sampled_from(KINDS),
    recurrent=st.booleans(),
    ends=st.booleans(),
    gae_lambda=st.sampled_from([None, 0.0, 0.9, 1.0]),
    asked_for=st.sets(st.sampled_from([VAL, IVAL])),
    seed=st.integers(0, 2**32 - 1),
)
def test_intrinsic_and_extrinsic_returns_equal_their_definitions(
    size: int,
    num_envs: int,
    kind: str,
    recurrent: bool,
    ends: bool,
    gae_lambda: float | None,
    asked_for: set[str],
    seed: int,
) -> None:
    own = {} if gae_lambda is None else {"gae_lambda": gae_lambda}
    cls = VanillaOnPolicyBuffer if gae_lambda is None else GAEBuffer
    storage = buffer(cls, size, ends=ends, asked_for=asked_for, **own)
    stream = Stream(num_envs, kind, recurrent, np.random.default_rng(seed))
    for rollout in range(2):
        steps = []
        for number in range(size):
            sample = valued(stream.step(), size * rollout + number)
            storage.insert_transition({key: value for key, value in sample.items() if key not in asked_for})
            steps.append(map_leaves(sample, np.array))
        storage.before_gradients()
        data = storage.get_all_buffer_data()
        for t in range(size):
            for env in range(num_envs):
                found = {key: data[key][t, env].item() for key in (IRET, IADV)}
                by_hand = intrinsic_by_hand(steps, t, env, ends, gae_lambda)
                assert found == pytest.approx(by_hand, rel=1e-4, abs=1e-4), (t, env)
                found = {key: data[key][t, env].item() for key in (RET, ADV)}
                assert found == pytest.approx(expected(steps, t, env, GAMMA, gae_lambda), rel=1e-4, abs=1e-4)
        (batch,) = storage.generate_batches(1, None)
        assert {IRET, IADV, IREW, IVAL, RET, ADV} <= batch.keys()
        assert sorted(batch[IRET].ravel().tolist()) == sorted(data[IRET].ravel().tolist())
        storage.reset()


@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer])
def test_returns_do_not_include_rewards_of_another_stream_of_experience(cls: Any) -> None:
    streams = [Stream(2, "vector", False, np.random.default_rng(seed)) for seed in (0, 1)]
    never_ends = {key: np.zeros((2, 1), bool) for key in (DONE2, TRUNC2)}
    steps = [valued(stream.step() | never_ends, 0) for stream in streams]
    storage = buffer(cls, 2, ends=False)
    for step in steps:
        storage.insert_transition(step)
    storage.before_gradients()
    data = storage.get_all_buffer_data()
    rest = 2 * summed({OBS: steps[0][OBS2]})
    np.testing.assert_allclose(data[IRET][0], steps[0][IREW] + INTRINSIC_GAMMA * rest, rtol=1e-5)


def test_replacing_intrinsic_rewards_requires_new_returns() -> None:
    storage = buffer(GAEBuffer, 2, ends=True)
    stream = Stream(1, "vector", False, np.random.default_rng(0))
    for number in range(2):
        storage.insert_transition(valued(stream.step(), number))
    storage.before_gradients()
    before = storage.get_all_buffer_data()
    storage.insert_single_tensor_slice(IREW, before[IREW] + 1)
    with pytest.raises(RuntimeError, match="before_gradients"):
        storage.generate_batches(1)
    storage.before_gradients()
    after = storage.get_all_buffer_data()
    assert torch.equal(after[REW], before[REW])
    assert torch.equal(after[RET], before[RET])
    assert float(after[IADV][-1, 0]) == pytest.approx(float(before[IADV][-1, 0]) + 1)


@pytest.mark.parametrize("last_is_skipped", [False, True])
@pytest.mark.parametrize("cls", [GAEBuffer, VanillaOnPolicyBuffer])
def test_intrinsic_returns_that_do_not_end_continue_over_skipped_steps(cls: Any, last_is_skipped: bool) -> None:
    def step(number: float, rewards: Any, ends: bool = False, skipped: bool | None = None) -> Sample:
        seen = np.full((1, 2), number, np.float32)
        sample = {
            OBS: seen, OBS2: seen + 1,
            DONE: np.array([[False]]), DONE2: np.array([[False]]), TRUNC2: np.array([[ends]]),
            "Action": np.zeros((1, 1), np.int64), REW: np.ones((1, 1), np.float32), LOGP: np.zeros((1, 1), np.float32),
            VAL: summed({OBS: seen}), IVAL: 2 * summed({OBS: seen}), IREW: np.full((1, 1), rewards, np.float32),
        }  # fmt: skip
        return sample if skipped is None else sample | {"Skipped": np.array([[skipped]])}

    def returns(steps: list[Sample]) -> Any:
        storage = buffer(cls, len(steps), ends=False)
        for one in steps:
            storage.insert_transition(one)
        storage.before_gradients()
        data = storage.get_all_buffer_data()
        kept = slice(None) if "Skipped" not in data else data["Skipped"][:, 0, 0] == 0
        return data[IRET][kept, 0, 0].numpy(), data[IADV][kept, 0, 0].numpy()

    # The episode ends at 2, and the next one begins at 10; a skipped step goes from 3, the final observation, to 10.
    made = [step(1, 5.0), step(2, 4.0, ends=True)] + ([] if last_is_skipped else [step(10, 3.0), step(11, 2.0)])
    between = step(3, 1000.0, ends=True, skipped=True) | {OBS2: np.full((1, 2), 10, np.float32)}
    skipping = [one | {"Skipped": np.array([[False]])} for one in made]
    skipping.insert(2, between)
    expected = returns([*made[:-1], made[-1] | {OBS2: between[OBS2]}] if last_is_skipped else made)
    np.testing.assert_allclose(returns(skipping), expected, rtol=1e-6)
