"""Hyper-parameters that change while other processes collect reach these with the lag of the weights."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from storages.component.schedule import FunctionSchedule
from storages.transition import ACT
from tests.support.comparison import assert_equal
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded

TARGET = 160
GREEDY, RANDOM = prl.EpsilonGreedy(0.0), prl.EpsilonGreedy(1.0)


def dqn(**changes: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=8, update_every=4, mini_batch_size=8, test_every=0, explorer=GREEDY),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.PERBuffer.create_factory(size=200, n_step=3, alpha=0.6),
        prl.VecEnv.create_factory("CartPole-v1", 2),
        normalize_rewards="returns",
        **changes,
    )


def ppo(**changes: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=8),
        prl.VecEnv.create_factory("CartPole-v1", 2),
        normalize_rewards="returns",
        **changes,
    )


Changes = Mapping[int, Mapping[str, Any]]
OF_DQN: Changes = {
    40: {"explorer": RANDOM, "gamma": 0.5},
    64: {"explorer": prl.Boltzmann(0.5)},
    96: {"explorer": None},
}
OF_PPO: Changes = {48: {"gamma": 0.5, "lr": prl.LinearSchedule(1e-2, 0.0)}, 64: {"clip_param": 0.05}}
RUNS: dict[str, tuple[Callable[..., prl.Scheme], Changes]] = {"dqn": (dqn, OF_DQN), "ppo": (ppo, OF_PPO)}


def train(scheme: prl.Scheme, until: int, changes: Changes) -> prl.Scheme:
    """Train like a learner with a target of 160 steps, whose callbacks change hyper-parameters after updates."""
    if not scheme.steps:
        scheme.set_progress(0, TARGET)
    while scheme.steps < until:
        before = scheme.steps
        _, due = scheme.collect(until)
        if due or scheme.steps == TARGET:
            scheme.set_progress(scheme.steps, TARGET)
        for _ in range(due):
            list(scheme.update())
        for at, values in changes.items():
            if before < at <= scheme.steps:
                for name, value in values.items():
                    scheme.algorithm.update_algorithm_parameter(name, value)
    return scheme


@pytest.mark.parametrize("name", RUNS)
def test_without_a_lag_a_run_with_changes_equals_that_of_one_process(name: str) -> None:
    make, changes = RUNS[name]
    alone, other = (train(make(collection=one), TARGET, changes) for one in (None, prl.Overlapped(0)))
    ours, theirs = alone.state_dict(), other.state_dict()
    for part in ("algorithm", "storage"):
        assert_equal(ours[part], theirs[part], part)
    alone.close()
    other.close()


@pytest.mark.parametrize(("name", "saved_at"), [("dqn", 32), ("dqn", 64), ("ppo", 48), ("ppo", 80)])
def test_a_resumed_run_with_changes_equals_the_uninterrupted_run(name: str, saved_at: int) -> None:
    (make, changes), collection = RUNS[name], prl.Overlapped(4, processes=2)
    whole = train(make(collection=collection), TARGET, changes)
    saved = train(make(collection=collection), saved_at, changes)
    state = saved_and_loaded(saved.state_dict())
    saved.close()
    resumed, again = make(collection=collection), make(collection=collection)
    resumed.load_state_dict(state)
    # A loaded state is also complete before the next step.
    again.load_state_dict(saved_and_loaded(resumed.state_dict()))
    for scheme in (resumed, again):
        scheme.set_progress(scheme.algorithm.steps or saved_at, TARGET)
        train(scheme, TARGET, {at: values for at, values in changes.items() if at > saved_at})
        assert_equal(scheme.state_dict(), whole.state_dict())
        scheme.close()
    whole.close()


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_steps_are_made_with_changes_as_many_steps_later_as_weights(lag: int) -> None:
    """Each step of one environment is an update phase, so that the lag is in steps."""
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=1, update_every=1, mini_batch_size=2, test_every=0, lr=0.0, explorer=GREEDY),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=400),
        prl.VecEnv.create_factory(Counter, env_kwargs={"length": 1_000}),
        collection=prl.Overlapped(lag),
    )
    scheme.set_progress(0, 300)
    while scheme.steps < 300:
        _, due = scheme.collect(300)
        for _ in range(due):
            list(scheme.update())
        if scheme.steps in (100, 200):
            scheme.algorithm.update_algorithm_parameter("explorer", RANDOM if scheme.steps == 100 else GREEDY)
    actions = scheme.storage.get_all_buffer_data()[ACT].flatten().tolist()
    scheme.close()
    greedy = actions[50]
    explored = [step for step in range(2, 300) if actions[step] != greedy]
    assert explored
    assert min(explored) >= 100 + lag
    assert max(explored) < 200 + lag
    # Half of the random actions are the greedy one.
    assert min(explored) < 100 + lag + 20
    assert max(explored) > 200 + lag - 20


def test_new_episodes_after_a_lost_process_are_collected_with_the_changes(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn(collection=prl.Overlapped(4))

    class ChangesOnce(prl.Callback):
        def on_step(self, learner: Any) -> None:
            if learner.scheme.steps == 40:
                learner.scheme.algorithm.update_algorithm_parameter("explorer", RANDOM)

    learner = prl.Learner(scheme(), 300, tmp_path / "run", callbacks=[ChangesOnce()])
    while learner.scheme.steps < 60:
        learner.step()
    [process] = learner.scheme.collector.envs.processes  # type: ignore[union-attr]
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(prl.CollectorError):
        learner.run()
    learner.close()
    with prl.Learner.resume(tmp_path / "run", scheme=scheme(), callbacks=[ChangesOnce()]) as resumed:
        begun_at = resumed.scheme.steps
        # From the first step on, as with the weights.
        ahead = resumed.scheme.state_dict()["collector"]["ahead"]
        assert ahead["changes"] == [[0, {"explorer": RANDOM.config}]]
        assert resumed.run()
        actions = resumed.scheme.storage.get_all_buffer_data()[ACT].flatten().tolist()[begun_at:]
    assert 0.3 < sum(actions) / len(actions) < 0.7


def test_a_change_that_cannot_be_sent_to_the_processes_is_refused_by_name() -> None:
    scheme = dqn(collection=prl.Overlapped(4))
    explorer = prl.EpsilonGreedy(FunctionSchedule(lambda progress: 0.5, 0.0, 1.0))
    scheme.algorithm.update_algorithm_parameter("explorer", explorer)
    with pytest.raises(
        TypeError, match=r"Overlapped: DQN\.explorer was changed to .*, which cannot be sent to the col"
    ):
        train(scheme, 20, {})
    scheme.algorithm.update_algorithm_parameter("explorer", None)
    train(scheme, 20, {})
    scheme.close()
