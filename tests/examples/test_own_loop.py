"""The example of a loop of one's own learns, and a killed run goes on as if it had not been killed."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from examples.own_loop import TASKS, train
from tests.support.comparison import assert_equal
from tests.support.profiles import FULL

KILLED = """
import os, signal, sys
import pytorchrl as prl
from examples.own_loop import train

observe = prl.Agent.observe

def killed(agent, *result):
    observe(agent, *result)
    if agent.steps == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

prl.Agent.observe = killed
train(sys.argv[1], sys.argv[2], 2500)
"""


def trained(algorithm: Any, log_dir: Path, steps: int) -> dict[str, Any]:
    with train(algorithm, str(log_dir), steps) as agent:
        state: dict[str, Any] = agent.learner.scheme.algorithm.state_dict()
        return state


@pytest.mark.long
@pytest.mark.parametrize("algorithm", TASKS)
def test_a_killed_run_goes_on_as_if_it_had_not_been_killed(algorithm: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, algorithm, str(tmp_path / "run"), "2345"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    assert_equal(trained(algorithm, tmp_path / "run", 2_500), trained(algorithm, tmp_path / "whole", 2_500))


@FULL
@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "least"), [("dqn", 150), ("ppo", 150), ("sac", -300)])
def test_it_learns_in_a_minute(algorithm: Any, least: float, tmp_path: Path) -> None:
    with train(algorithm, str(tmp_path / "run")) as agent:
        assert agent.done
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert records[-1]["train/return"] > least


def test_the_loop_takes_forty_lines() -> None:
    assert len((Path(__file__).parents[2] / "examples" / "own_loop.py").read_text().splitlines()) <= 40
