"""A sweep of wandb: its agent starts ``train`` with the file of the documentation."""

import os
import queue
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.wandb_agent import Agent

from pytorchrl.__main__ import main
from tests.support.wandb_files import config_of, history, run_files, start, summary_of

PAGE = Path(__file__).parents[3] / "docs" / "logging.md"
SMALL = ("--steps=60", "--no-preset", "--actor.hidden-sizes=8", "--algorithm.test-every=30")


def sweep_of_the_page() -> dict[str, Any]:
    found = re.search(r"\n\n((?:    .*\n)*    program: (?:.*\n)(?:    .*\n)+)", PAGE.read_text())
    assert found
    sweep: dict[str, Any] = yaml.safe_load(found[1])
    return sweep


@pytest.mark.long
@pytest.mark.usefixtures("no_wandb_settings")
def test_wandbs_agent_trains_with_the_values_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of_the_page()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    # The variables that an agent sets; the server is left out.
    for name, value in {"MODE": "offline", "SWEEP_ID": "sweep1", "PROJECT": "mine", "DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    # What an agent sets itself is removed afterwards.
    for name in ("RUN_ID", "SWEEP_PARAM_PATH"):
        monkeypatch.setenv(f"WANDB_{name}", "")
    agent = Agent(None, queue.Queue())
    agent._sweep_command = [*map(str, sweep["command"]), *SMALL]
    values = {"algorithm.lr": 0.003, "storage.n_step": 3, "seed": 2}
    assert values.keys() == sweep["parameters"].keys()
    arguments = {name: {"value": value} for name, value in values.items()}
    agent._command_run({"run_id": "trial1", "program": sweep["program"], "args": arguments})
    assert agent._run_processes["trial1"].wait(timeout=300) == 0
    run_folder = tmp_path / "runs" / "sweep-DQN-CartPole-v1" / "sweep1" / "trial1" / "seed-2"
    (path,) = run_files(run_folder)
    run = start(path)
    assert (run.run_id, run.sweep_id, run.project) == ("trial1", "sweep1", "mine")
    config = config_of(path)
    assert {name: config[name] for name in values} == values
    assert (config["algorithm"], config["env"], config["steps"]) == ("DQN", "CartPole-v1", 60)
    assert [row["steps"] for row in history(path) if sweep["metric"]["name"] in row][-1] == 60
    # A number, as the search of wandb reads no nested values.
    assert isinstance(summary_of(path)[sweep["metric"]["name"]], float)


@pytest.mark.long
@pytest.mark.usefixtures("no_wandb_settings")
def test_runs_of_the_sweep_command_show_what_it_varies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PAGE.parents[1]))
    monkeypatch.setenv("WANDB_TAGS", "mine")
    arguments = ["sweep", "--algorithm=dqn", "--env=CartPole-v1", "--log-to", "Wandb(tags=['own'])", *SMALL]
    arguments += ["--vary", "algorithm.lr", "1e-3", "--vary", "actor.hidden-sizes", "8,8", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    main()
    (folder,) = (tmp_path / "runs" / "sweep-DQN-CartPole-v1").glob("*/seed-2")
    (path,) = run_files(folder)
    run = start(path)
    assert run.display_name == "DQN-CartPole-v1-lr=1e-3,hidden-sizes=8,8-seed-2"
    assert list(run.tags)[:4] == ["own", "mine", "lr=1e-3", "hidden-sizes=8 8"]
    assert (run.run_group, run.job_type) == ("sweep-DQN-CartPole-v1", "lr=1e-3,hidden-sizes=8,8")
    assert "wandb sync" in (folder.parent / "output.txt").read_text()
