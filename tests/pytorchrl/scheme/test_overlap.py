"""Collecting in other processes while the learner updates."""

import gc
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.envs.worker_processes import worker_signals
from storages.transition import ACT, DONE, DONE2, LOGP, OBS, REW
from tests.support.clocks import RememberedClocks
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme, sac_scheme
from tests.support.data_sets import recorded
from tests.support.ended_learners import SIGNALS, output_of_ended
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded

Make = Callable[..., prl.Scheme]


def normalised_dqn(**changes: Any) -> prl.Scheme:
    """Running statistics of observations and rewards, and a wrapper that truncates episodes."""
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=6, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.PERBuffer.create_factory(size=60, n_step=3, alpha=0.6),
        prl.VecEnv.create_factory("CartPole-v1", 2, wrappers=[("TimeLimit", {"max_episode_steps": 9})]),
        normalize_rewards="returns",
        **changes,
    )


def recurrent_ppo(**changes: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=8, normalize_observations=True),
        prl.VTraceBuffer.create_factory(size=8, sequence_length=4),
        prl.VecEnv.create_factory("CartPole-v1", 3),
        **changes,
    )


def hindsight_dqn(**changes: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=4, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.HERBuffer.create_factory(size=60),
        prl.VecEnv.create_factory(prl.BitFlipping, 2, env_kwargs={"n": 4}),
        **changes,
    )


def ppo_with_skipped_steps(**changes: Any) -> prl.Scheme:
    """Environments that make no transition in the step after the end of an episode."""
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.GAEBuffer.create_factory(size=8),
        prl.VecEnv.create_factory("CartPole-v1", 3, vectorization_mode="vector_entry_point"),
        normalize_rewards="returns",
        **changes,
    )


def dqn_with_skipped_steps(**changes: Any) -> prl.Scheme:
    """A replay storage of environments that make no transition in the step after the end of an episode."""
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=6, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.PERBuffer.create_factory(size=60, n_step=3, alpha=0.6),
        prl.VecEnv.create_factory(RememberedClocks, 2),
        normalize_rewards="returns",
        **changes,
    )


TARGET = 160


def train(scheme: prl.Scheme, until: int) -> prl.Scheme:
    """Train like a learner with a target of 160 steps, but only up to a number of steps."""
    if not scheme.steps:
        scheme.set_progress(0, TARGET)
    while scheme.steps < until:
        _, due = scheme.collect(until)
        if due or scheme.steps == TARGET:
            scheme.set_progress(scheme.steps, TARGET)
        for _ in range(due):
            list(scheme.update())
    return scheme


@pytest.mark.quick_share(0.2, long=0.6)
@pytest.mark.parametrize(
    "make",
    [
        dqn_scheme,
        sac_scheme,
        ppo_scheme,
        normalised_dqn,
        recurrent_ppo,
        hindsight_dqn,
        ppo_with_skipped_steps,
        dqn_with_skipped_steps,
    ],
)
def test_without_a_lag_a_run_equals_that_of_one_process(make: Make) -> None:
    alone, other = train(make(), TARGET), train(make(collection=prl.Overlapped(0)), TARGET)
    ours, theirs = alone.state_dict(), other.state_dict()
    for part in ("algorithm", "storage"):
        assert_equal(ours[part], theirs[part], part)
    for part in ("steps", "episodes", "rewards", "shaped_returns"):
        assert_equal(ours["collector"][part], theirs["collector"][part], part)
    alone.close()
    other.close()


@pytest.mark.quick_share(0.1, long=0.8)
@pytest.mark.parametrize(
    ("make", "processes"),
    [(dqn_scheme, 2), (normalised_dqn, 1), (recurrent_ppo, 2), (hindsight_dqn, 1), (dqn_with_skipped_steps, 2)],
)
def test_saved_and_resumed_runs_equal_the_uninterrupted_run(make: Make, processes: int) -> None:
    collection = prl.Overlapped(4, processes)
    whole = train(make(collection=collection), TARGET)
    saved = train(make(collection=collection), 96)
    state = saved_and_loaded(saved.state_dict())
    train(saved, TARGET)
    resumed = make(collection=collection)
    resumed.load_state_dict(state)
    # A loaded state is also complete before the next step.
    again = make(collection=collection)
    again.load_state_dict(saved_and_loaded(resumed.state_dict()))
    for scheme in (resumed, again):
        scheme.set_progress(scheme.algorithm.steps or 96, TARGET)
        train(scheme, TARGET)
    for scheme in (saved, resumed, again):
        assert_equal(scheme.state_dict(), whole.state_dict())
        scheme.close()
    whole.close()


def test_a_run_with_skipped_steps_resumes_at_the_saved_step() -> None:
    saved = train(ppo_with_skipped_steps(collection=prl.Overlapped(1)), 96)
    assert saved.steps % 3, "steps of three environments without the skipped ones"
    resumed = ppo_with_skipped_steps(collection=prl.Overlapped(1))
    resumed.load_state_dict(saved_and_loaded(saved.state_dict()))
    assert resumed.steps == saved.steps
    # These environments cannot save their state: their running episodes end.
    before, after = (scheme.state_dict()["collector"]["episodes"] for scheme in (saved, resumed))
    assert before <= after <= before + 3
    resumed.set_progress(resumed.steps, TARGET)
    train(resumed, TARGET)
    assert TARGET <= resumed.steps < TARGET + 3
    saved.close()
    resumed.close()


@pytest.mark.parametrize("lag", [1, 3])
def test_rollouts_use_weights_that_are_older_by_the_given_number_of_update_phases(lag: int) -> None:
    scheme = ppo_scheme(collection=prl.Overlapped(lag))
    weights = [scheme.algorithm.get_weights()]
    older = ppo_scheme()
    scheme.set_progress(0, 1_000)
    for phase in range(6):
        _, due = scheme.collect(1_000)
        assert due == 1
        rollout = scheme.storage.get_all_buffer_data()
        older.algorithm.set_weights(weights[max(0, phase - lag)])
        log_probs, _ = older.actor.evaluate_actions(rollout[OBS], None, rollout[DONE].float(), rollout[ACT])
        torch.testing.assert_close(rollout[LOGP], log_probs, rtol=1e-5, atol=1e-6)
        metrics = list(scheme.update())
        assert [info["train/policy_lag"] for info in metrics] == [4 * min(phase, lag)] * 4
        weights.append(scheme.algorithm.get_weights())
    scheme.close()
    older.close()


class Breaks(Counter):
    """Fails in its third step, as long as it is broken."""

    is_broken = True

    def step(self, action: Any) -> Any:
        if self.count == 2 and Breaks.is_broken:
            raise ZeroDivisionError("the arm is stuck")
        return super().step(action)


def test_after_an_exception_of_an_environment_the_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scheme() -> prl.Scheme:
        envs = prl.VecEnv.create_factory(Breaks, env_kwargs={"length": 20})
        return dqn_scheme(envs=envs, collection=prl.Overlapped(8), algorithm={"test_every": 0})

    learner = prl.Learner(scheme(), 30, tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match="the arm is stuck") as caught:
        learner.run()
    assert learner.scheme.steps == len(learner.scheme.storage) == 2
    notes = "\n".join(caught.value.__notes__)
    assert "In collector process 0" in notes
    assert 'raise ZeroDivisionError("the arm is stuck")' in notes
    assert "as of 2 of 30 steps; continue" in notes
    with pytest.raises(RuntimeError, match="the last step of the environments failed"):
        learner.step()
    learner.close()
    monkeypatch.setattr(Breaks, "is_broken", False)
    again = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert again.run()
    rewards = again.scheme.storage.get_all_buffer_data()[REW].flatten().tolist()
    assert rewards == [*range(1, 21), *range(1, 11)]
    again.close()


@pytest.mark.long
def test_a_killed_process_is_named_and_the_run_resumes_with_all_stored_transitions(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", 3, env_kwargs={"max_episode_steps": 7})
    learner = prl.Learner(dqn_scheme(envs=envs, collection=prl.Overlapped(6, processes=2)), 90, tmp_path / "run")
    while learner.scheme.steps < 45:
        learner.step()
    os.kill(child_processes(learner.scheme)[1].pid, signal.SIGKILL)
    with pytest.raises(
        prl.CollectorError,
        match=r"collector process 1 \(id \d+\) was killed by SIGKILL, perhaps because it ran out of memory",
    ) as at:
        learner.run()
    assert "in the run folder" in str(at.value) or "The run is saved" in "".join(at.value.__notes__)
    stored, steps = learner.scheme.storage.get_all_buffer_data(), learner.scheme.steps
    learner.close()
    again = prl.Learner.resume(tmp_path / "run")
    assert again.scheme.steps == steps
    assert_equal(again.scheme.storage.get_all_buffer_data(), stored)
    assert again.run()
    assert again.get_metrics()["train/episodes_cut_by_resume"] == 3
    kept = again.scheme.storage.get_all_buffer_data()
    assert kept[DONE][steps // 3].all()
    assert not kept[DONE2][steps // 3 - 1].any()
    again.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_collector_processes_leave_signals_to_the_process_of_the_learner(mode: str) -> None:
    # As in a process that has not created environments before.
    worker_signals.cache_clear()
    envs = prl.VecEnv.create_factory("CartPole-v1", 2, mode=mode)
    scheme = dqn_scheme(envs=envs, collection=prl.Overlapped(4, processes=2), algorithm={"test_every": 0})
    with worker_signals().held_back():
        for process in child_processes(scheme):
            os.kill(process.pid, signal.SIGTERM)
        while scheme.steps < 100:
            scheme.collect(2**62)
    scheme.close()


def child_processes(scheme: prl.Scheme) -> list[Any]:
    return [process._process for process in scheme._collector.envs.processes]  # type: ignore[union-attr]


def test_a_transition_that_the_storage_refuses_ends_the_run_before_its_step() -> None:
    class BreaksDown(Counter):
        def _observation(self) -> Any:
            return super()._observation() * (float("nan") if self.count == 5 else 1)

    scheme = dqn_scheme(
        envs=prl.VecEnv.create_factory(BreaksDown, env_kwargs={"length": 20}), collection=prl.Overlapped(8)
    )
    with pytest.raises(prl.SampleError, match="nan") as caught:
        train(scheme, 40)
    assert "The sample was collected in" in caught.value.__notes__[0]
    assert len(scheme.storage) == scheme.steps == 4
    scheme.state_dict()
    scheme.close()


def test_an_exception_while_environments_are_created_is_raised_in_the_learner() -> None:
    def missing() -> gym.Env[Any, Any]:
        raise FileNotFoundError("no map of the maze")

    with pytest.raises(FileNotFoundError, match="no map of the maze") as caught:
        dqn_scheme(envs=prl.VecEnv.create_factory(missing), collection=prl.Overlapped(8))
    assert "In collector process" in caught.value.__notes__[0]


def test_a_run_resumes_from_its_folder_alone_but_not_without_overlapped_collection(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(collection=prl.Overlapped(4, processes=2)), 60, tmp_path / "run")
    assert learner.run()
    assert 0 < learner.get_metrics()["train/policy_lag"] <= 4
    learner.close()
    with pytest.raises(prl.CheckpointError, match=r"collection.max_policy_lag: nothing here, 4 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme())
    again = prl.Learner.resume(tmp_path / "run", target_steps=90)
    assert again.scheme.config["collection"] == prl.Overlapped(4, processes=2).config
    assert again.run()
    again.close()


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("is_closed", [True, False])
def test_no_process_remains_after_a_scheme_is_closed_or_garbage_collected(is_closed: bool) -> None:
    scheme = train(dqn_scheme(collection=prl.Overlapped(4, processes=2)), 60)
    pids = [process.pid for process in child_processes(scheme)]
    if is_closed:
        scheme.close()
        scheme.close()
    del scheme
    gc.collect()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


SCRIPT = """
import sys
import pytorchrl as prl
from tests.support.compositions import dqn_scheme

class PrintsIds(prl.Callback):
    def on_update(self, learner, info):
        if learner.scheme.algorithm.updates == 5:
            print(*[process._process.pid for process in learner.scheme.envs.processes], flush=True)
        if learner.scheme.algorithm.updates == 7 and sys.argv[3] == "exited":
            sys.exit()

envs = prl.VecEnv.create_factory("CartPole-v1", 2, mode=sys.argv[2])
scheme = dqn_scheme(envs=envs, collection=prl.Overlapped(4, processes=2), algorithm={"test_every": 0})
learner = prl.Learner(scheme, 10_000_000, sys.argv[1], callbacks=[PrintsIds()])
learner.run()
learner.close()
"""


@pytest.mark.quick_share(0, long=0.65)
@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "mode"), list(zip([*SIGNALS, "exited"], itertools.cycle(["sync", "async"]), strict=False))
)
def test_no_process_remains_however_the_learner_ends(mode: str, ending: str, tmp_path: Path) -> None:
    printed = output_of_ended(SCRIPT, [str(tmp_path / "run"), mode, ending], ending)
    if ending in ("ctrl_c", "terminated"):
        assert "; continue" in printed
        envs = prl.VecEnv.create_factory("CartPole-v1", 2, mode=mode)
        scheme = dqn_scheme(envs=envs, collection=prl.Overlapped(4, processes=2), algorithm={"test_every": 0})
        again = prl.Learner.resume(tmp_path / "run", scheme=scheme, callbacks=())
        steps = again.scheme.steps
        assert steps >= 40
        again.step()
        assert again.scheme.steps > steps
        again.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collection": prl.Overlapped(1)}, "one step of 8 environments makes more than 1 update phases of DQN due"),
        ({"collection": prl.Overlapped(8, processes=9)}, "9 processes cannot share 8 environments"),
        (
            {"storage": prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1.0))},
            "leave out the rate_limit of ReplayBuffer",
        ),
    ],
)
def test_compositions_that_cannot_overlap_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", 8)
    with pytest.raises(prl.CompositionError, match=message):
        dqn_scheme(envs=envs, **({"collection": prl.Overlapped(8)} | changes))


def test_overlapped_collection_is_refused_without_training_environments(tmp_path: Path) -> None:
    data = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), recorded(tmp_path / "data.npz"))
    with pytest.raises(prl.CompositionError, match=r"leave out Overlapped\(max_policy_lag=1"):
        prl.Scheme(
            prl.BehaviourCloning.create_factory(),
            prl.OffPolicyActor.create_factory(),
            data,
            collection=prl.Overlapped(1),
        )


def test_hyper_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="Overlapped: max_policy_lag"):
        prl.Overlapped(-1)
    with pytest.raises(ValueError, match="Overlapped: processes"):
        prl.Overlapped(1, processes=0)


class KeepsItsState(Counter):
    """Cannot return its state after its first steps."""

    def state_dict(self) -> Any:
        if len(self.actions) > 9:
            raise ConnectionError("my state is not to be had")
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Keep the present state."""


def test_an_exception_of_a_state_is_raised_and_the_processes_go_on(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory(KeepsItsState, num_envs=2, replay_on_resume=False)
    scheme = dqn_scheme(envs=envs, collection=prl.Overlapped(8, processes=2), algorithm={"test_every": 0})
    learner = prl.Learner(scheme, 60, tmp_path / "run")
    for _ in range(2):
        with pytest.raises(ConnectionError, match="my state is not to be had"):
            learner.run(checkpoint_every=20)
    assert learner.scheme.steps >= 40
    learner.close()
