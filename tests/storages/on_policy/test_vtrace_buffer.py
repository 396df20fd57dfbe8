"""V-trace rollouts: what an older policy did is weighed by what the current one would have done."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import EmptyStorageError, GAEBuffer, SampleError, VTraceBuffer
from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, TRUNC2, VAL

ALGORITHM = SimpleNamespace(gamma=0.9)


class Actor:
    """Values an observation by its number, and gives action 1 a probability of its own."""

    def __init__(self, of_one: float, worth: float = 2.0) -> None:
        self.of_one, self.worth = of_one, worth

    def value(self, obs: Any, rhs: Any, done: torch.Tensor) -> torch.Tensor:
        return self.worth * obs

    def evaluate_actions(self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor) -> Any:
        probability = torch.where(action == 1, self.of_one, 1 - self.of_one)
        return probability.log(), self.worth * obs


def samples(steps: int, num_envs: int, acted: Actor) -> list[dict[str, Any]]:
    draw, found = np.random.default_rng(0), []
    obs, done = draw.normal(size=(num_envs, 1)).astype(np.float32), np.ones((num_envs, 1), bool)
    for _ in range(steps):
        action = draw.integers(0, 2, (num_envs, 1))
        terminated, truncated = (draw.random((num_envs, 1)) < 0.1 for _ in range(2))
        following = draw.normal(size=(num_envs, 1)).astype(np.float32)
        log_prob, value = acted.evaluate_actions(torch.from_numpy(obs), None, torch.zeros(1), torch.from_numpy(action))
        found.append(
            {
                OBS: obs,
                DONE: done,
                ACT: action,
                REW: draw.normal(size=(num_envs, 1)).astype(np.float32),
                OBS2: following,
                DONE2: terminated,
                TRUNC2: truncated,
                VAL: value.float(),
                LOGP: log_prob.float(),
            }
        )
        done = terminated | truncated
        obs = np.where(done, draw.normal(size=(num_envs, 1)), following).astype(np.float32)
    return found


def filled(storage: Any, inserted: list[dict[str, Any]]) -> Any:
    for sample in inserted:
        storage.insert_transition(sample)
    storage.before_gradients()
    return storage


def test_the_current_policy_and_its_values_count_not_those_that_acted() -> None:
    acted, now = Actor(0.5, worth=1.0), Actor(0.9, worth=3.0)
    inserted = samples(20, 3, acted)
    factory = VTraceBuffer.create_factory(size=20, rho_bar=1.2, c_bar=0.8, trace_lambda=0.9)
    storage = filled(factory("cpu", now, ALGORITHM, None), inserted)
    data = storage.get_all_buffer_data()
    correction = np.zeros(3)
    for t in range(19, -1, -1):
        s = inserted[t]
        ended = (s[DONE2] | s[TRUNC2])[:, 0]
        correction[ended] = 0
        value, following = 3.0 * s[OBS][:, 0], 3.0 * s[OBS2][:, 0] * ~s[DONE2][:, 0]
        ratio = np.where(s[ACT][:, 0] == 1, 0.9, 0.1) / 0.5
        error = s[REW][:, 0] + 0.9 * following - value
        rho, c = np.minimum(1.2, ratio), 0.9 * np.minimum(0.8, ratio)
        np.testing.assert_allclose(data[ADV][t, :, 0], rho * (error + 0.9 * correction), rtol=1e-4, atol=1e-4)
        correction = rho * error + 0.9 * c * correction
        np.testing.assert_allclose(data[RET][t, :, 0], value + correction, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trace_lambda", [0.0, 0.95, 1.0])
def test_of_the_policy_that_acted_it_makes_the_returns_of_gae(trace_lambda: float) -> None:
    actor = Actor(0.3)
    inserted = samples(30, 2, actor)
    one = filled(
        VTraceBuffer.create_factory(size=30, trace_lambda=trace_lambda)("cpu", actor, ALGORITHM, None), inserted
    )
    two = filled(GAEBuffer.create_factory(size=30, gae_lambda=trace_lambda)("cpu", actor, ALGORITHM, None), inserted)
    torch.testing.assert_close(one.get_all_buffer_data()[RET], two.get_all_buffer_data()[RET])
    (batch,) = one.generate_batches(1)
    assert {RET, ADV} <= batch.keys()


def test_what_the_acting_policy_thought_must_be_there() -> None:
    storage = VTraceBuffer.create_factory(size=5)("cpu", Actor(0.5), ALGORITHM, None)
    with pytest.raises(EmptyStorageError):
        storage.before_gradients()
    (sample,) = samples(1, 2, Actor(0.5))
    del sample[LOGP]
    with pytest.raises(SampleError, match="VTraceBuffer: a sample needs LogProbability"):
        storage.insert_transition(sample)
    assert len(storage) == 0


@pytest.mark.parametrize("name", ["rho_bar", "c_bar"])
def test_truncation_levels_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"VTraceBuffer: {name} must be greater than 0"):
        VTraceBuffer.create_factory(size=5, **{name: 0.0})
