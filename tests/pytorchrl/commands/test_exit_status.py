"""The exit status of a command that Ctrl-C stopped is 130, so that scripts do not go on with half a run."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.sweeps import trials
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

ID = "pytorchrl-tests/PressesCtrlC-v0"
TRAIN = ["train", "--algorithm", "DQN", "--env", ID, "--algorithm.start-steps", "20", "--steps", "60"]


class PressesCtrlC(Counter):
    """Interrupts its process at the 33rd step of all environments."""

    steps = 0

    def step(self, action: Any) -> Any:
        PressesCtrlC.steps += 1
        if PressesCtrlC.steps == 33:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PressesCtrlC, "steps", 0)
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
