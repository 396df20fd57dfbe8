"""The page of imitation learning: interrupted runs are continued, finished ones reused, and missing ones marked."""

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


def write_result(file: Path, mean_return: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(benchmark.Result(mean_return, 100, 12.4))))


def row_of(name: str, text: str) -> list[str]:
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_shows_finished_runs_and_marks_missing_ones(tmp_path: Path) -> None:
    first, second = IMITATION.tasks["maze"].stages
    for seed, share in enumerate((0.0, 0.5, 1.0), start=1):
        write_result(benchmark.result_file(tmp_path, "maze", seed, first), share)
    write_result(benchmark.result_file(tmp_path, "maze", 2, second), 1.0)
    text = benchmark.page_text(IMITATION, tmp_path)
    assert row_of("PPO", text) == ["`PPO`", "100,000", "none", "0.00", "0.50", "1.00", "0.50", "50%", "12"]
    assert row_of("PPOD", text)[3:] == ["not run", "1.00", "not run", "-", "-", "12"]
    assert "Not run: `learning_page.py imitation --only hopper`" in text
    assert "--only maze`" not in text


def test_shares_are_relative_to_the_trained_expert(tmp_path: Path) -> None:
    expert, imitator, _ = IMITATION.tasks["hopper"].stages
    for seed in IMITATION.tasks["hopper"].seeds:
        write_result(benchmark.result_file(tmp_path, "hopper", seed, expert), 1_018.0)
        write_result(benchmark.result_file(tmp_path, "hopper", seed, imitator), 518.0)
    text = benchmark.page_text(IMITATION, tmp_path)
    assert row_of("expert", text)[-2] == "100%"
    assert row_of("GAIL", text)[-2] == "50%"


@pytest.mark.long
def test_an_interrupted_run_continues_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    made = benchmark.make(task, stage, folder, 1, steps=2_048)
    assert begun_at == [0, 1_104]
    assert made.steps == 2_048


def made_runs(folder: Path) -> list[str]:
    return sorted(file.parent.name for file in folder.rglob("metrics.jsonl"))


def test_a_kept_result_is_used_without_its_folder_and_is_not_replaced(tmp_path: Path) -> None:
    tasks = {"maze": replace(IMITATION.tasks["maze"], episodes=1, seeds=(1,))}
    page = replace(IMITATION, tasks=tasks)
    arguments = benchmark.Arguments(docs=tmp_path, runs=tmp_path / "first", kept=tmp_path / "kept", steps=16)
    write_result(benchmark.result_file(tmp_path / "kept" / page.name, "maze", 1, tasks["maze"].stages[0]), 0.25)
    benchmark.make_page(page, ("maze",), arguments)
    assert made_runs(tmp_path / "first") == ["PPO", "PPOD"]
    text = (tmp_path / "imitation.md").read_text()
    assert row_of("PPO", text)[3] == "0.25"
    assert row_of("PPOD", text)[3] == "0.00"
    benchmark.make_page(page, ("maze",), replace(arguments, runs=tmp_path / "second"))
    assert made_runs(tmp_path / "second") == []
    assert (tmp_path / "imitation.md").read_text() == text


@pytest.mark.long
def test_every_run_of_three_tasks_can_be_made(tmp_path: Path) -> None:
    for name in ("maze", "pendulum", "reward"):
        task = replace(IMITATION.tasks[name], episodes=1)
        for stage in task.stages:
            made = benchmark.make(task, stage, tmp_path / f"{name}-1" / stage.name, 1, steps=16)
            assert made.steps == 16, stage.name


@pytest.mark.long
def test_every_run_from_offline_to_online_learning_can_be_made(tmp_path: Path) -> None:
    recorded(tmp_path / "Pendulum-v1-medium.npz", "Pendulum-v1", 600)
    task = replace(ONLINE.tasks["pendulum"], episodes=1)
    for stage in task.stages:
        folder = tmp_path / "pendulum-1" / stage.name
        assert benchmark.make(task, stage, folder, 1, steps=16).steps == 16, stage.name
    both = json.loads((tmp_path / "pendulum-1" / "IQL, offline to online" / "config.json").read_text())
    assert both["started_from"]["steps"] == 16
