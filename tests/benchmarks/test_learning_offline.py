"""The script that compares what is learnt from data makes data, runs, the page and pictures, each once."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.learning import learning_offline
from benchmarks.learning.learning_offline import Arguments, main
from benchmarks.learning.offline_tasks import TASKS

SMALL = dataclasses.replace(TASKS["cartpole"], kinds=("random",), updates=20, transitions=200, seeds=(1, 2))


def contents(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_second_call_takes_what_the_first_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_offline, "TASKS", {"small": SMALL})
    monkeypatch.setattr(learning_offline, "_EPISODES", 2)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs")
    main(arguments)
    page = (tmp_path / "docs" / "offline-learning.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| CartPole-v1")]
    assert "DiscreteCQL | 20 |" in row
    assert row.endswith("not run |")
    assert (tmp_path / "docs" / "offline-learning-small.png").read_bytes().startswith(b"\x89PNG")
    before = {path: time for path, time in contents(tmp_path / "runs").items() if path.name == "metrics.jsonl"}
    assert len(before) == 2
    main(arguments)
    assert {path: contents(tmp_path / "runs")[path] for path in before} == before


def test_scores_of_both_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_seed = dataclasses.replace(SMALL, seeds=(1,))
    monkeypatch.setattr(learning_offline, "TASKS", {"small": one_seed})
    monkeypatch.setattr(learning_offline, "_EPISODES", 2)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs")
    (job,) = learning_offline.jobs("small", arguments)
    file = job.place("d3rlpy") / "result.json"
    file.parent.mkdir(parents=True)
    # 475 is a score of 1, 22.2 of 0.
    file.write_text(json.dumps({"returns": {"10": 22.2, "20": 475.0}}), encoding="utf-8")
    main(arguments)
    page = (tmp_path / "docs" / "offline-learning.md").read_text(encoding="utf-8")
    assert "| 1.00 (1.00 to 1.00) |" in page
