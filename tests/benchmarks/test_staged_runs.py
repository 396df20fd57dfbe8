"""The page of imitation continues what was stopped, takes what has finished, and says what was not run."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from benchmarks.learning import staged_runs as benchmark
from benchmarks.learning.imitation_tasks import IMITATION
from benchmarks.learning.online_tasks import ONLINE
from tests.support.data_sets import recorded


def write_result(folder: Path, mean_return: float) -> None:
    folder.mkdir(parents=True)
    (folder / "staged_run.json").write_text(json.dumps(asdict(benchmark.Result(mean_return, 100, 12.4))))


def row_of(name: str, text: str) -> list[str]:
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_holds_what_has_finished_and_says_what_was_not_run(tmp_path: Path) -> None:
    first, second = IMITATION.tasks["maze"].stages
    for seed, share in enumerate((0.0, 0.5, 1.0), start=1):
        write_result(benchmark.folder_of(tmp_path, "maze", seed, first), share)
    write_result(benchmark.folder_of(tmp_path, "maze", 2, second), 1.0)
    text = benchmark.page_text(IMITATION, tmp_path)
    assert row_of("PPO", text) == ["`PPO`", "100,000", "none", "0.00", "0.50", "1.00", "0.50", "50%", "12"]
    assert row_of("PPOD", text)[3:] == ["not run", "1.00", "not run", "-", "-", "12"]
    assert "Not run: `learning_imitation.py --only hopper`" in text
    assert "--only maze`" not in text


def test_shares_are_of_an_expert_that_was_trained(tmp_path: Path) -> None:
    expert, imitator, _ = IMITATION.tasks["hopper"].stages
    for seed in IMITATION.tasks["hopper"].seeds:
        write_result(benchmark.folder_of(tmp_path, "hopper", seed, expert), 1_018.0)
        write_result(benchmark.folder_of(tmp_path, "hopper", seed, imitator), 518.0)
    text = benchmark.page_text(IMITATION, tmp_path)
    assert row_of("expert", text)[-2] == "100%"
    assert row_of("GAIL", text)[-2] == "50%"


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(IMITATION.tasks["maze"], episodes=2)
    stage, folder = task.stages[1], tmp_path / "maze-1" / "PPOD"
    train, begun_at = prl.Learner.run, []

    def stopping(learner: Any) -> bool:
        begun_at.append(learner.scheme.steps)
        if len(begun_at) == 1:
            monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= 1_100)
        return train(learner)

    monkeypatch.setattr(prl.Learner, "run", stopping)
    with pytest.raises(KeyboardInterrupt):
        benchmark.make(task, stage, folder, 1, steps=2_048)
    assert benchmark.result_of(folder) is None
    made = benchmark.make(task, stage, folder, 1, steps=2_048)
    assert begun_at == [0, 1_104]
    assert benchmark.result_of(folder) == made
    assert made.steps == 2_048


@pytest.mark.long
def test_every_run_of_every_task_can_be_made(tmp_path: Path) -> None:
    for name in ("maze", "pendulum", "reward"):
        task = replace(IMITATION.tasks[name], episodes=1)
        for stage in task.stages:
            made = benchmark.make(task, stage, benchmark.folder_of(tmp_path, name, 1, stage), 1, steps=16)
            assert made.steps == 16, stage.name


@pytest.mark.long
def test_every_run_from_data_and_by_experience_can_be_made(tmp_path: Path) -> None:
    recorded(tmp_path / "Pendulum-v1-medium.npz", "Pendulum-v1", 600)
    task = replace(ONLINE.tasks["pendulum"], episodes=1)
    for stage in task.stages:
        folder = benchmark.folder_of(tmp_path, "pendulum", 1, stage)
        assert benchmark.make(task, stage, folder, 1, steps=16).steps == 16, stage.name
    both = json.loads((tmp_path / "pendulum-1" / "IQL, offline to online" / "config.json").read_text())
    assert both["started_from"]["steps"] == 16
