"""Many short runs beside stable-baselines3: the table of results, and runs that are not repeated."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import short_runs

STEPS = 700


def arguments(folder: Path, **changes: Any) -> short_runs.Arguments:
    given = {"algorithms": ("TD3",), "seeds": 1, "target_steps": STEPS, "processes": 1} | changes
    return short_runs.Arguments(**given, results=folder / "results.jsonl", output=folder / "docs" / "page.md")


def write_results(folder: Path, returns: dict[str, list[float]], steps: int = STEPS) -> None:
    lines = [
        json.dumps(["TD3", whose, seed, steps, value])
        for whose, values in returns.items()
        for seed, value in enumerate(values, 1)
    ]
    with (folder / "results.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def rows_of(folder: Path) -> list[list[str]]:
    lines = (folder / "docs" / "page.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def test_the_table_has_means_and_differences_with_standard_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(tmp_path, {"pytorchrl": [-10.0, -20.0], "stable-baselines3": [-12.0, -16.0, 900.0]})
    write_results(tmp_path, {"pytorchrl": [1.0], "stable-baselines3": [2.0]}, steps=STEPS + 1)
    monkeypatch.setattr(short_runs, "_TRAIN", dict.fromkeys(short_runs._TRAIN))
    short_runs.main(arguments(tmp_path, seeds=2))
    error = math.hypot(5.0, 2.0)
    assert rows_of(tmp_path) == [
        ["`TD3`", "2", "-15.0 ± 5.0", "-14.0 ± 2.0", f"-1.0 ± {error:.1f}", f"{-1 / error:+.1f}"]
    ]


@pytest.mark.long
def test_runs_that_have_finished_are_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    given = arguments(tmp_path)
    short_runs.main(given)
    first = given.results.read_text()
    returns = {tuple(line[:3]): line[4] for line in map(json.loads, first.splitlines())}
    assert returns.keys() == {("TD3", whose, 1) for whose in ("pytorchrl", "stable-baselines3")}
    # Three episodes of 200 steps, whose rewards are at least -16.3.
    assert all(-16.3 * 200 < value < -100 for value in returns.values())
    assert "2 runs, 0 of them finished" in capsys.readouterr().out
    short_runs.main(given)
    assert given.results.read_text() == first
    assert "2 runs, 2 of them finished" in capsys.readouterr().out
    assert rows_of(tmp_path)[0][:2] == ["`TD3`", "1"]


@pytest.mark.long
def test_runs_of_stable_baselines3_leave_no_folder_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    temporary, run = tmp_path / "temporary", tmp_path / "run"
    for folder in (temporary, run):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    short_runs._train_theirs("TD3", 1, 20, run)
    assert (run / "metrics.jsonl").exists()
    assert not list(temporary.glob("SB3*"))
