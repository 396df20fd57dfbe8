"""Truncated episodes, and those that still run at the end of a rollout, are used or dropped, by ``cut_episodes``."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import VanillaOnPolicyBuffer
from storages.core.ring.layout import SampleError
from storages.transition import ADV, MASK, OBS, RET, RHS, RHS2, VAL
from tests.support.profiles import examples
from tests.support.rollouts import GAMMA, buffer, step

KINDS = {"goes on": (0, 0), "terminates": (1, 0), "is cut": (0, 1), "terminates at the limit": (1, 1)}


@st.composite
def rollouts(draw: Any) -> list[list[str]]:
    """The kind of each transition, as lists of shape (T, E)."""
    steps, envs = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    # Most steps go on.
    kinds = st.sampled_from([*KINDS, *["goes on"] * 4])
    return draw(st.lists(st.lists(kinds, min_size=envs, max_size=envs), min_size=steps, max_size=steps))


def filled(
    rollout: list[list[str]],
    size: int,
    also: Collection[str] = (),
    without: Collection[str] = (),
    **hyper_parameters: Any,
) -> Any:
    """A storage with unique numbers as observations and powers of two as rewards."""
    storage = buffer(VanillaOnPolicyBuffer, size=size, **hyper_parameters)
    envs = len(rollout[0])
    begins = [1] * envs
    for t, kinds in enumerate(rollout):
        ends = [KINDS[kind] for kind in kinds]
        sample = step(
            [number_of(t, env, envs) for env in range(envs)],
            [number_of(t + 1, env, envs) + (0.5 if any(ends[env]) else 0) for env in range(envs)],
            [2.0**-t] * envs,
            terminated=[end[0] for end in ends],
            truncated=[end[1] for end in ends],
            done=begins,
        )
        memory = {key: np.zeros((envs, 1), np.float32) for key in also}
        storage.insert_transition({key: value for key, value in sample.items() if key not in without} | memory)
        begins = [int(any(end)) for end in ends]
    return storage


def number_of(t: int, env: int, envs: int) -> int:
    return t * envs + env


def returns_of_terminated_episodes(rollout: list[list[str]]) -> dict[float, float]:
    """The sums of rewards by observation, computed one transition at a time."""
    envs = len(rollout[0])
    returns = {}
    for t in range(len(rollout)):
        for env in range(envs):
            total = 0.0
            for later in range(t, len(rollout)):
                total += GAMMA ** (later - t) * 2.0**-later
                kind = rollout[later][env]
                if kind.startswith("terminates"):
                    returns[float(number_of(t, env, envs))] = total
                if kind != "goes on":
                    break
    return returns


NOTHING_IS_LEARNT = "ignore:VanillaOnPolicyBuffer. no episode terminates:RuntimeWarning"


@pytest.mark.filterwarnings(NOTHING_IS_LEARNT)
@given(rollouts(), st.integers(0, 2), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=examples(200), deadline=None)
def test_batches_contain_only_transitions_of_terminated_episodes_with_their_returns(
    rollout: list[list[str]], room: int, num_mini_batch: int, num_epochs: int
) -> None:
    storage = filled(rollout, len(rollout) + room, cut_episodes="drop")
    num_mini_batch = min(num_mini_batch, len(storage))
    storage.before_gradients()
    expected = returns_of_terminated_episodes(rollout)
    batches = list(storage.generate_batches(num_mini_batch, None, num_epochs))
    assert len(batches) == num_epochs * min(num_mini_batch, len(expected))
    observations = [float(obs) for batch in batches for obs in batch[OBS]]
    assert sorted(observations) == sorted(num_epochs * list(expected))
    for batch in batches:
        got = [float(value) for value in batch[RET]]
        assert got == pytest.approx([expected[float(obs)] for obs in batch[OBS]], rel=1e-5)


def test_an_episode_that_terminates_in_the_next_rollout_yields_only_the_steps_there() -> None:
    storage = filled([["goes on"], ["goes on"]], 2, cut_episodes="drop")
    storage.before_gradients()
    with pytest.warns(RuntimeWarning, match=r"no episode terminates in a rollout of 2 steps.*cut_episodes='bootstrap'"):
        assert list(storage.generate_batches(1)) == []
    storage.reset()
    storage.insert_transition(step(2, 3, 1.0))
    storage.insert_transition(step(3, 9, 1.0, terminated=1))
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    assert sorted(batch[OBS].ravel().tolist()) == [2, 3]


def test_by_default_truncated_episodes_bootstrap_from_the_next_value() -> None:
    storage = filled([["is cut"]], 1)
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    assert float(batch[RET]) == pytest.approx(1 + GAMMA * 10 * 1.5)


@pytest.mark.filterwarnings(NOTHING_IS_LEARNT)
@given(rollouts(), st.integers(1, 3))
@settings(max_examples=examples(100), deadline=None)
def test_the_mask_of_sequences_is_1_in_terminated_episodes(rollout: list[list[str]], num_mini_batch: int) -> None:
    storage = filled(rollout, len(rollout), {RHS, RHS2}, cut_episodes="drop")
    storage.before_gradients()
    expected = returns_of_terminated_episodes(rollout)
    batches = list(storage.generate_batches(min(num_mini_batch, len(rollout[0])), None))
    assert all(batch[MASK].flatten(0, 1).any() for batch in batches), "a batch without unmasked steps"
    got = {
        float(obs): float(value)
        for batch in batches
        for obs, value, mask in zip(*(batch[key].flatten(0, 1) for key in (OBS, RET, MASK)), strict=True)
        if mask
    }
    assert got == pytest.approx(expected, rel=1e-5)
    assert all(batch[OBS].shape == (len(rollout), *batch[RHS].shape) for batch in batches), (
        "sequences as long as the rollout"
    )


def test_values_are_not_required_if_cut_episodes_are_dropped() -> None:
    storage = filled([["goes on", "is cut"], ["terminates", "goes on"]], 2, without={VAL}, cut_episodes="drop")
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    assert torch.equal(batch[ADV], batch[RET])
    assert sorted(batch[RET].ravel().tolist()) == pytest.approx([0.5, 1 + GAMMA * 0.5])
    assert storage.actor.asked == []
    with pytest.raises(SampleError, match=f"needs {VAL}"):
        filled([["goes on"]], 1, without={VAL})


def test_advantages_are_normalised_over_the_transitions_in_batches() -> None:
    rollout = [["goes on", "goes on"], ["terminates", "goes on"], ["terminates", "goes on"]]
    storage = filled(rollout, 3, cut_episodes="drop")
    with pytest.raises(RuntimeError, match="before_gradients"):
        storage.normalize_advantages()
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    plain = dict(zip(batch[OBS].ravel().tolist(), batch[ADV].ravel().tolist(), strict=True))
    storage.normalize_advantages()
    (batch,) = storage.generate_batches(1)
    normalised = dict(zip(batch[OBS].ravel().tolist(), batch[ADV].ravel().tolist(), strict=True))
    numbers = np.array(list(plain.values()))
    expected = (numbers - numbers.mean()) / numbers.std(ddof=1)
    assert normalised == pytest.approx(dict(zip(plain, expected, strict=True)), rel=1e-5)


def test_an_unknown_value_of_cut_episodes_is_refused() -> None:
    with pytest.raises(ValueError, match="cut_episodes"):
        VanillaOnPolicyBuffer.create_factory(size=3, cut_episodes="forget")


def test_values_requested_by_the_algorithm_are_subtracted_from_the_returns() -> None:
    rollout = [["goes on", "is cut"], ["terminates", "goes on"]]
    storage = filled(rollout, 2, without={VAL}, cut_episodes="drop", actor=Tenfold(), values_when_full={VAL})
    storage.before_gradients()
    (batch,) = storage.generate_batches(1)
    assert torch.equal(batch[VAL], 10 * batch[OBS])
    assert torch.equal(batch[ADV], batch[RET] - batch[VAL])
    assert sorted(batch[RET].ravel().tolist()) == pytest.approx([0.5, 1 + GAMMA * 0.5])


class Tenfold:
    """The value of an observation is ten times its number."""

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        return 10 * obs
