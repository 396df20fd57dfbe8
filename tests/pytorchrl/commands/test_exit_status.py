"""The exit status of a command that Ctrl-C stopped is 130, so that scripts do not go on with half a run."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl import learner as learner_module
from pytorchrl.__main__ import main
from pytorchrl.commands import policies
from pytorchrl.commands.data.making.agent import agent_of
from pytorchrl.commands.sweeps import trials
from tests.support.compositions import dqn_scheme
from tests.support.notices import without_compilation
from tests.support.toys import Counter

ID = "pytorchrl-tests/PressesCtrlC-v0"
TRAIN = ["train", "--algorithm", "DQN", "--env", ID, "--algorithm.start-steps", "20", "--steps", "60"]


class PressesCtrlC(Counter):
    """Interrupts its process at a step of all environments."""

    steps = 0
    at = 33

    def step(self, action: Any) -> Any:
        PressesCtrlC.steps += 1
        if PressesCtrlC.steps == PressesCtrlC.at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PressesCtrlC, "steps", 0)
    monkeypatch.setattr(PressesCtrlC, "at", 33)
    gym.register(ID, PressesCtrlC)
    yield
    gym.registry.pop(ID)


def status_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_a_stopped_training_ends_with_130_and_names_the_command_for_all_seeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, *TRAIN, "--seeds", "1", "2") == 130
    printed = capsys.readouterr().out
    assert "Stopped at 33 of 60 steps; continue" in printed
    assert printed.endswith("The same command as before continues the runs of all seeds.\n")
    assert not Path("runs/DQN-pytorchrl-tests-PressesCtrlC-v0/seed-2").exists()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *TRAIN, "--seeds", "1", "2"])
    main()
    assert "seed-2: seed 2, 0 of 60 steps" in capsys.readouterr().out


def test_a_stopped_continuation_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    PressesCtrlC.steps = 33
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(ID)), 10, "run")
    learner.run()
    learner.close()
    # To find its state again, the environment may repeat up to ten steps before the run goes on.
    PressesCtrlC.steps = 33 - 20
    assert status_of(monkeypatch, "resume", "run", "--target-steps", "60") == 130
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "resume", "run"])
    main()


@pytest.fixture
def presses_in_the_last_evaluation(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupts the first evaluation after 60 steps; holds the steps of all evaluations, made or stopped."""
    monkeypatch.setattr(PressesCtrlC, "at", 0)
    evaluate, evaluations = prl.Scheme.evaluate, []

    def pressed(self: prl.Scheme, *arguments: Any) -> Any:
        evaluations.append(self.steps)
        if evaluations.count(60) == 1:
            PressesCtrlC.at = PressesCtrlC.steps + 1
        return evaluate(self, *arguments)

    monkeypatch.setattr(prl.Scheme, "evaluate", pressed)
    return evaluations


def test_a_training_stopped_in_its_last_evaluation_ends_with_130_and_makes_it_later(
    presses_in_the_last_evaluation: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = (Path(f"runs/DQN-pytorchrl-tests-PressesCtrlC-v0/seed-{seed}") for seed in (1, 2))
    assert status_of(monkeypatch, *TRAIN, "--seeds", "1", "2") == 130
    assert "Stopped in the last evaluation; continue" in capsys.readouterr().out
    assert (prl.read_evaluations(run), other.exists()) == ([], False)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *TRAIN, "--seeds", "1", "2"])
    main()
    assert [len(prl.read_evaluations(folder)) for folder in (run, other)] == [1, 1]


def test_a_continuation_stopped_in_its_last_evaluation_ends_with_130(
    presses_in_the_last_evaluation: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(ID)), 10, "run")
    learner.run()
    learner.close()
    capsys.readouterr()
    assert status_of(monkeypatch, "resume", "run", "--target-steps", "60") == 130
    assert "60 of 60 steps" not in capsys.readouterr().out


def test_ctrl_c_after_the_last_step_of_a_seed_does_not_begin_the_next_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PressesCtrlC, "at", 0)
    monkeypatch.setattr(learner_module, "draw_curve", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert status_of(monkeypatch, *TRAIN, "--seeds", "1", "2") == 130
    assert not Path("runs/DQN-pytorchrl-tests-PressesCtrlC-v0/seed-2").exists()


def test_the_agent_of_data_makes_a_stopped_last_evaluation_before_recording(
    presses_in_the_last_evaluation: list[int],
) -> None:
    agent = agent_of(ID, None, 60, 0, Path("runs"))
    with pytest.raises(InterruptedError, match="was stopped; run the same command again to continue"):
        agent.train()
    agent.train()
    assert prl.read_evaluations(agent.folder)[-1]["steps"] == 60
    evaluations = len(presses_in_the_last_evaluation)
    agent.train()
    assert len(presses_in_the_last_evaluation) == evaluations, "the agent is trained"


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_a_command_that_ctrl_c_stops_at_once_ends_with_130_and_without_a_traceback(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PressesCtrlC, "at", 0)
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(ID)), 20, "run")
    learner.run()
    learner.close()

    def press(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    # A second Ctrl-C in training, and one while a policy is evaluated.
    monkeypatch.setattr(prl.Learner, "run", press)
    monkeypatch.setattr(policies, "evaluate_from_seeds", press)
    assert status_of(monkeypatch, command, "run") == 130
    assert (
        without_compilation(capsys.readouterr().err)
        == "Stopped at once by Ctrl-C; runs continue from their last checkpoints.\n"
    )


def test_a_trial_of_a_sweep_that_a_signal_stopped_has_not_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trials.subprocess, "Popen", lambda *_, **__: _Stopped())
    sweep = ["sweep", *TRAIN[1:], "--vary", "algorithm.gamma", "0.9"]
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *sweep])
    main()
    assert "seed-1: stopped; the same command continues it" in capsys.readouterr().out


class _Stopped:
    """A process that ended with the status of a stopped run."""

    def wait(self, seconds: float | None = None) -> int:
        return 130
