"""Ctrl-C, SIGTERM and SIGUSR1 end a run after a complete step, and save it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from tests.support.compositions import dqn_scheme
from tests.support.notices import without_compilation
from tests.support.toys import Counter


class PressesCtrlC(Counter):
    def step(self, action: Any) -> Any:
        if len(self.actions) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


def test_ctrl_c_saves_the_run_and_prints_how_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(PressesCtrlC))
    learner = prl.Learner(scheme, 100, tmp_path / "run")
    handler = signal.getsignal(signal.SIGINT)
    assert not learner.run()
    assert signal.getsignal(signal.SIGINT) is handler
    assert learner.scheme.steps == 7
    printed = capsys.readouterr().out
    assert f"Stopped at 7 of 100 steps; continue with\n  {learner.resume_command}\n" in printed
    assert checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]["steps"] == learner.scheme.steps


SCRIPT = """
import os, signal, sys
import gymnasium
import pytorchrl as prl
from tests.support.compositions import dqn_scheme

folder, mode, number, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

class SendsSignals(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        SendsSignals.steps += 1
        if SendsSignals.steps == 33:
            for _ in range(times):
                os.kill(os.getpid(), number) if mode == "sync" else os.killpg(0, number)
        return self.env.step(action)

if __name__ == "__main__":
    envs = prl.VecEnv.create_factory("CartPole-v1", mode=mode, wrappers=[SendsSignals])
    learner = prl.Learner(dqn_scheme(envs=envs, algorithm={"test_every": 0}), 100, folder)
    learner.run()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mode == "sync":
        learner.close()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "number", "times"),
    [
        ("sync", signal.SIGTERM, 2),
        ("async", signal.SIGTERM, 2),
        ("async", signal.SIGUSR1, 1),
        ("async", signal.SIGINT, 1),
    ],
)
def test_signals_to_one_or_all_processes_save_the_run_and_print_how_to_resume(
    mode: str, number: int, times: int, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), mode, str(int(number)), str(times)],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert finished.returncode == 0, finished.stderr
    assert without_compilation(finished.stderr) == ""
    stopped_at = checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]["steps"]
    # In another process the signal may come a step later.
    assert 33 <= stopped_at <= 35
    assert f"Stopped at {stopped_at} of 100 steps; continue in the script that defines SendsSignals" in finished.stdout
    assert f"learner = prl.Learner.resume('{tmp_path / 'run'}', scheme=scheme)" in finished.stdout
