"""A collector passes to its algorithm in which environments an episode begins."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pytorchrl as prl
from pytorchrl.scheme.collector import Collector
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter


def environments(kind: str) -> prl.Factory[prl.VecEnv]:
    """Three environments whose episodes end at different steps; the native ones skip the step after an end."""
    if kind == "copies":
        return prl.VecEnv.create_factory(lambda: Counter(length=3), 3)
    return prl.VecEnv.create_factory("CartPole-v1", 3, vectorization_mode="vector_entry_point")


def watched(scheme: prl.Scheme, monkeypatch: pytest.MonkeyPatch) -> tuple[Collector, list[NDArray[np.bool_]]]:
    """The collector of a scheme, and a list of the starts of episodes that it passes, (E,) for each step."""
    passed: list[NDArray[np.bool_]] = []
    act = scheme.algorithm.acting_step

    def acting_step(obs: Any, rhs: Any, done: Any, exploration: Any) -> Any:
        assert exploration.starts is done
        passed.append(done[:, 0].numpy() > 0)
        return act(obs, rhs, done, exploration)

    monkeypatch.setattr(scheme.algorithm, "acting_step", acting_step)
    collector = scheme.collector
    assert isinstance(collector, Collector)
    return collector, passed


@pytest.mark.parametrize("kind", ["copies", "native"])
def test_episodes_begin_after_ends_skipped_steps_resets_and_lost_episodes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = dqn_scheme(envs=environments(kind), algorithm={"start_steps": 1_000, "test_every": 0})
    collector, passed = watched(scheme, monkeypatch)
    expected, ends = [np.ones(3, np.bool_)], 0
    step_envs = collector.envs.step

    def recorded(actions: Any) -> Any:
        nonlocal ends
        step = step_envs(actions)
        ended = (step.terminated | step.truncated)[:, 0]
        ends += int(ended.sum())
        expected.append(ended if step.made is None else ended | ~step.made[:, 0])
        return step

    monkeypatch.setattr(collector.envs, "step", recorded)
    for _ in range(60):
        collector.step()
    assert ends > 3
    assert any(not begins.any() for begins in expected)
    np.testing.assert_array_equal(passed, expected[:-1])
    while expected[-1].any():
        collector.step()
    collector.reset(1)
    collector.step()
    assert passed[-1].all()
    while expected[-1].any():
        collector.step()
    state = collector.state_dict()
    other, passed_by_other = watched(dqn_scheme(envs=environments(kind), algorithm={"start_steps": 1_000}), monkeypatch)
    for _ in range(4):
        other.step()
    cut = other.load_state_dict(state)
    other.step()
    # The native environments do not return to their state.
    assert (passed_by_other[-1] == np.isin(range(3), cut)).all()
    assert len(cut) == (0 if kind == "copies" else 3)
