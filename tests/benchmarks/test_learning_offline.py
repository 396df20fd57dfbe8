"""The script that compares offline learning creates data sets, runs, a page and plots, each only once."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.learning import learning_offline, offline_runs
from benchmarks.learning.learning_offline import Arguments, main
from benchmarks.learning.offline_tasks import TASKS

SMALL = dataclasses.replace(TASKS["cartpole"], kinds=("random",), updates=20, transitions=200, seeds=(1, 2))


def contents(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
def test_a_second_call_reuses_the_runs_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_offline, "TASKS", {"small": SMALL})
    monkeypatch.setattr(offline_runs, "EPISODES", 2)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
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


def test_the_table_has_the_scores_of_d3rlpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_seed = dataclasses.replace(SMALL, seeds=(1,))
    monkeypatch.setattr(learning_offline, "TASKS", {"small": one_seed})
    monkeypatch.setattr(offline_runs, "EPISODES", 2)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    (job,) = learning_offline.jobs("small", arguments)
    file = job.place("d3rlpy") / "result.json"
    file.parent.mkdir(parents=True)
    # A return of 475 is a score of 1, a return of 22.2 a score of 0.
    file.write_text(json.dumps({"returns": {"10": 22.2, "20": 475.0}}), encoding="utf-8")
    # The interpreter does not exist: the existing result is used.
    main(dataclasses.replace(arguments, d3rlpy=tmp_path / "python"))
    page = (tmp_path / "docs" / "offline-learning.md").read_text(encoding="utf-8")
    assert "| 1.00 (1.00 to 1.00) |" in page


def test_a_kept_result_is_on_the_page_without_the_folder_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_offline, "TASKS", {"small": SMALL})
    arguments = Arguments(only=(), docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    for job, score in zip(learning_offline.jobs("small", arguments), (0.25, 0.75), strict=True):
        job.kept.mkdir(exist_ok=True)
        finished = offline_runs.Finished(200, 0.125, (10, 20), (0.0, score))
        job.kept_file("ours").write_text(json.dumps(dataclasses.asdict(finished)), encoding="utf-8")
    main(arguments)
    page = (tmp_path / "docs" / "offline-learning.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| CartPole-v1")]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        "random, 200 transitions",
        "0.12",
        "DiscreteCQL",
        "20",
        "0.50 ± 0.25 (0.25 to 0.75)",
        "not run",
    ]
    assert not (tmp_path / "runs").exists()


def test_an_algorithm_that_d3rlpy_does_not_have_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (compared,) = SMALL.algorithms
    alone = dataclasses.replace(SMALL, seeds=(1,), algorithms=(dataclasses.replace(compared, peer=None, theirs={}),))
    monkeypatch.setattr(learning_offline, "TASKS", {"small": alone})
    monkeypatch.setattr(offline_runs, "EPISODES", 2)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    # The interpreter does not exist.
    main(dataclasses.replace(arguments, d3rlpy=tmp_path / "python"))
    page = (tmp_path / "docs" / "offline-learning.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| CartPole-v1")]
    assert row.endswith("| no such algorithm |")


def test_the_page_names_the_command_for_missing_runs(tmp_path: Path) -> None:
    arguments = Arguments(only=(), docs=tmp_path, runs=tmp_path / "runs", kept=tmp_path / "kept")
    main(arguments)
    page = (tmp_path / "offline-learning.md").read_text(encoding="utf-8")
    assert f"Not run: `learning_offline.py --only {' '.join(TASKS)}`" in page


def test_the_error_output_of_a_failed_d3rlpy_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_offline, "TASKS", {"small": dataclasses.replace(SMALL, seeds=(1,))})
    monkeypatch.setattr(offline_runs, "EPISODES", 2)
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho 'MuJoCo is not installed' >&2\nexit 1\n", encoding="utf-8")
    interpreter.chmod(0o755)
    arguments = Arguments(only=("small",), docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    with pytest.raises(
        RuntimeError, match="CartPole-v1-random-DiscreteCQL-20-updates, seed 1:\nMuJoCo is not installed"
    ):
        main(dataclasses.replace(arguments, d3rlpy=interpreter))
