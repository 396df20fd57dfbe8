"""V-trace rollouts: steps of an older policy are weighted by the probabilities of the current policy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import EmptyStorageError, GAEBuffer, SampleError, VTraceBuffer
from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, RHS, RHS2, TRUNC2, VAL

ALGORITHM = SimpleNamespace(gamma=0.9)


class Actor:
    """The value of an observation is a multiple of it, and action 1 has a given probability."""

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


def test_targets_use_the_values_and_probabilities_of_the_current_policy() -> None:
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
def test_on_policy_returns_equal_those_of_gae(trace_lambda: float) -> None:
    actor = Actor(0.3)
    inserted = samples(30, 2, actor)
    one = filled(
        VTraceBuffer.create_factory(size=30, trace_lambda=trace_lambda)("cpu", actor, ALGORITHM, None), inserted
    )
    two = filled(GAEBuffer.create_factory(size=30, gae_lambda=trace_lambda)("cpu", actor, ALGORITHM, None), inserted)
    torch.testing.assert_close(one.get_all_buffer_data()[RET], two.get_all_buffer_data()[RET])
    (batch,) = one.generate_batches(1)
    assert {RET, ADV} <= batch.keys()


@pytest.mark.parametrize("rho_bar", [0.3, 1.0, 1.2])
@pytest.mark.parametrize("of_one", [0.5, 0.8])
def test_values_converge_to_those_of_a_policy_between_the_acting_and_the_current_one(
    rho_bar: float, of_one: float
) -> None:
    between = np.minimum(rho_bar * 0.5, [1 - of_one, of_one])
    value = between @ [1.0, 4.0] / between.sum() / (1 - 0.9)
    # Both actions, which were equally likely, in the only state.
    sample = samples(1, 2, Actor(0.5))[0]
    sample |= {key: np.zeros((2, 1), bool) for key in (DONE2, TRUNC2)}
    sample |= {key: np.ones((2, 1), np.float32) for key in (OBS, OBS2)}
    sample |= {ACT: np.array([[0], [1]]), REW: np.array([[1.0], [4.0]], np.float32)}
    factory = VTraceBuffer.create_factory(size=1, rho_bar=rho_bar)
    targets = filled(factory("cpu", Actor(of_one, value), ALGORITHM, None), [sample]).get_all_buffer_data()[RET]
    np.testing.assert_allclose(targets.mean(), value, rtol=1e-5)


class RecordingActor(Actor):
    """Records the arguments of its evaluations."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.asked: list[tuple[torch.Tensor, Any, torch.Tensor]] = []

    def evaluate_actions(self, obs: Any, rhs: Any, done: torch.Tensor, action: torch.Tensor) -> Any:
        assert not torch.is_grad_enabled()
        assert len(obs) == len(done) == len(action)
        self.asked.append((obs, rhs, done))
        return super().evaluate_actions(obs, rhs, done, action)


def test_a_recurrent_actor_evaluates_the_whole_rollout_from_its_first_state() -> None:
    actor, inserted = RecordingActor(), samples(700, 3, Actor(0.5))
    for number, sample in enumerate(inserted):
        sample |= {RHS: np.full((3, 4), number, np.float32), RHS2: np.full((3, 4), number + 1, np.float32)}
    filled(VTraceBuffer.create_factory(size=700)("cpu", actor, ALGORITHM, None), inserted)
    ((obs, rhs, done),) = actor.asked
    assert np.array_equal(obs, [sample[OBS] for sample in inserted])
    assert np.array_equal(done, [sample[DONE] for sample in inserted])
    assert torch.equal(rhs, torch.zeros(3, 4))


def test_steps_and_log_probabilities_of_the_acting_policy_are_required() -> None:
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


def test_values_requested_by_the_algorithm_are_those_used_for_the_targets() -> None:
    algorithm = SimpleNamespace(gamma=0.9, values_when_full=frozenset({VAL}))
    inserted = samples(20, 2, Actor(0.4))
    with_values = filled(VTraceBuffer.create_factory(size=20)("cpu", Actor(0.5, 3.0), ALGORITHM, None), inserted)
    without = [{key: value for key, value in sample.items() if key != VAL} for sample in inserted]
    asked = filled(VTraceBuffer.create_factory(size=20)("cpu", Actor(0.5, 3.0), algorithm, None), without)
    ours, other = asked.get_all_buffer_data(), with_values.get_all_buffer_data()
    assert torch.equal(ours[VAL], 3.0 * ours[OBS])
    assert all(torch.equal(ours[key], other[key]) for key in (RET, ADV))
