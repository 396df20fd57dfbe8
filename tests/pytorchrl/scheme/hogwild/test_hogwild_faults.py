"""Exceptions, kills and ends of runs whose processes share their parameters."""

import gc
import itertools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from tests.support.ended_learners import SIGNALS, output_of_ended
from tests.support.hogwild import a3c, nsq, processes_of, train
from tests.support.toys import Counter


class Breaks(Counter):
    """Fails in its eighth step, as long as it is broken."""

    is_broken = True

    def step(self, action: Any) -> Any:
        if self.count == 7 and Breaks.is_broken:
            raise ZeroDivisionError("the arm is stuck")
        return super().step(action)


def test_an_exception_of_an_environment_shows_its_traceback_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheme() -> prl.Scheme:
        envs = prl.VecEnv.create_factory(Breaks, env_kwargs={"length": 20})
        return prl.HogwildScheme(**a3c(train_envs_factory=envs), processes=1)

    learner = prl.Learner(scheme(), 30, tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match="the arm is stuck") as caught:
        learner.run()
    notes = "\n".join(caught.value.__notes__)
    assert "In Hogwild process 0" in notes
    assert 'raise ZeroDivisionError("the arm is stuck")' in notes
    # The update of the first rollout is made, and the two steps after it are in the process's storage.
    assert (learner.scheme.steps, learner.scheme.algorithm.updates) == (7, 1)
    with pytest.raises(RuntimeError, match="the last step of the environments failed"):
        learner.step()
    learner.close()
    monkeypatch.setattr(Breaks, "is_broken", False)
    again = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert again.scheme.steps == 7
    assert again.run()
    assert (again.scheme.steps, again.scheme.algorithm.updates) == (30, 6)
    again.close()


class FailingA2C(prl.A2C):
    """Fails in its third update, as long as it is broken."""

    is_broken = True

    def losses(self, rows: Any) -> Any:
        if self.updates == 2 and FailingA2C.is_broken:
            raise FloatingPointError("the loss is not finite")
        return super().losses(rows)


def test_an_update_that_failed_is_made_by_the_resumed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = a3c(algo_factory=FailingA2C.create_factory(test_every=0))
    with prl.HogwildScheme(**parts, processes=1) as scheme:
        with pytest.raises(FloatingPointError, match="the loss is not finite"):
            train(scheme, 50)
        state = scheme.state_dict()
    monkeypatch.setattr(FailingA2C, "is_broken", False)
    with prl.HogwildScheme(**parts, processes=1) as resumed, prl.Scheme(**parts) as whole:
        resumed.load_state_dict(state)
        assert (resumed.steps, resumed.algorithm.updates) == (15, 2)
        train(resumed, 50)
        train(whole, 50)
        assert resumed.algorithm.updates == 10
        # Not exactly, as the restored rollout lies elsewhere in memory, which rounds its sums in another order.
        torch.testing.assert_close(resumed.algorithm.get_weights(), whole.algorithm.get_weights())


class BreaksOnDemand(Counter):
    """Fails in a process for which there is a file named after its process id."""

    folder = Path()

    def step(self, action: Any) -> Any:
        if (self.folder / str(os.getpid())).exists():
            raise ZeroDivisionError("the arm is stuck")
        return super().step(action)


def test_after_an_exception_the_steps_of_all_processes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BreaksOnDemand, "folder", tmp_path)
    with prl.HogwildScheme(**a3c(train_envs_factory=prl.VecEnv.create_factory(BreaksOnDemand)), processes=2) as scheme:
        train(scheme, 40)
        scheme.load_state_dict(scheme.state_dict())
        (tmp_path / str(processes_of(scheme)[1]._process.pid)).touch()
        with pytest.raises(ZeroDivisionError, match="the arm is stuck"):
            train(scheme, 10**9)
        state = scheme.state_dict()
        reported = state["collector"]["steps"] + sum(report["steps"] for report in state["collector"]["reports"])
        made = [worker["scheme"]["collector"]["steps"] for worker in state["collector"]["workers"]]
        assert reported == sum(made)
        assert state["algorithm"]["training"]["counters"]["updates"] == sum(steps // 5 for steps in made)


def test_a_killed_process_is_named_and_the_run_resumes_from_the_shared_parameters(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", 3)
    parts = a3c(train_envs_factory=envs)
    # So many steps that the other process cannot make them before the killed one is noticed.
    learner = prl.Learner(prl.HogwildScheme(**parts, processes=2), 3000, tmp_path / "run")
    while learner.scheme.steps < 90:
        learner.step()
    os.kill(processes_of(learner.scheme)[1]._process.pid, signal.SIGKILL)
    with pytest.raises(
        prl.CollectorError, match=r"Hogwild process 1 \(id \d+\) was killed by SIGKILL.*Its updates up to then are kept"
    ):
        learner.run()
    with pytest.raises(prl.CollectorError, match="Hogwild process 1"):
        learner.step()
    state = learner.scheme.state_dict()
    assert state["collector"]["workers"][1] is None
    learner.close()
    again = prl.Learner.resume(tmp_path / "run")
    counters = again.scheme.state_dict()["algorithm"]["training"]["counters"]
    assert counters == state["algorithm"]["training"]["counters"]
    assert again.run()
    assert again.scheme.steps == 3000
    assert again.get_metrics()["train/episodes_cut_by_resume"] == 3
    assert again.scheme.load_state_dict(state) == [3, 4, 5]
    again.close()


def test_an_exception_while_a_process_makes_its_parts_is_raised_in_the_learner() -> None:
    def missing() -> gym.Env[Any, Any]:
        if os.getpid() != learner:
            raise FileNotFoundError("no map of the maze")
        return Counter()

    learner = os.getpid()
    with pytest.raises(FileNotFoundError, match="no map of the maze") as caught:
        prl.HogwildScheme(**a3c(train_envs_factory=prl.VecEnv.create_factory(missing)), processes=2)
    assert "In Hogwild process 0" in "\n".join(caught.value.__notes__)


def test_no_process_remains_where_parts_are_refused() -> None:
    with pytest.raises(prl.UnsupportedSpaceError) as caught:
        prl.HogwildScheme(**nsq(train_envs_factory=prl.VecEnv.create_factory("Pendulum-v1")), processes=2)
    assert not [child for child in multiprocessing.active_children() if "Hogwild" in child.name]
    assert "NStepQLearning" in str(caught.value)


@pytest.mark.parametrize("is_closed", [True, False])
def test_no_process_remains_after_a_scheme_is_closed_or_garbage_collected(is_closed: bool) -> None:
    scheme = prl.HogwildScheme(**a3c(), processes=2)
    scheme.collect(10_000)
    pids = [process._process.pid for process in processes_of(scheme)]
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
from tests.support.hogwild import a3c, nsq, processes_of

class PrintsIds(prl.Callback):
    def on_update(self, learner, info):
        if learner.scheme.steps >= 100 and not self.printed:
            self.printed = True
            print(*[process._process.pid for process in processes_of(learner.scheme)], flush=True)
        if learner.scheme.steps >= 200 and sys.argv[3] == "exited":
            sys.exit()

    printed = False

envs = prl.VecEnv.create_factory("CartPole-v1", 2, mode=sys.argv[2])
scheme = prl.HogwildScheme(**a3c(train_envs_factory=envs), processes=2)
learner = prl.Learner(scheme, 10_000_000, sys.argv[1], callbacks=[PrintsIds()])
learner.run()
learner.close()
"""


@pytest.mark.quick_share(0, long=1)
@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "mode"), list(zip([*SIGNALS, "exited"], itertools.cycle(["async", "sync"]), strict=False))
)
def test_no_process_remains_however_the_learner_ends(mode: str, ending: str, tmp_path: Path) -> None:
    printed = output_of_ended(SCRIPT, [str(tmp_path / "run"), mode, ending], ending)
    if ending in ("ctrl_c", "terminated"):
        assert "; continue" in printed
        envs = prl.VecEnv.create_factory("CartPole-v1", 2, mode=mode)
        scheme = prl.HogwildScheme(**a3c(train_envs_factory=envs), processes=2)
        again = prl.Learner.resume(tmp_path / "run", scheme=scheme, callbacks=())
        steps = again.scheme.steps
        assert steps >= 100
        again.step()
        assert again.scheme.steps > steps
        again.close()
