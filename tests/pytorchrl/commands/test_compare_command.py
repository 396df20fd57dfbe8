"""``python -m pytorchrl compare`` and ``plot``, with the arguments of the documentation."""

import csv
import math
import sys
from pathlib import Path

import matplotlib.image
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.sweeps.sweep import write_results
from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.commands.train import _show_results as show_results
from tests.support.run_folders import evaluated_run

SMALL = ("--actor.hidden-sizes", "8", "--algorithm.test-every", "200", "--algorithm.num-test-episodes", "2")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    main()


def six_runs(folder: Path) -> None:
    for algorithm, better in (("DQN", 0.0), ("PPO", 100.0)):
        for seed in (1, 2, 3):
            returns = [(step, step / 5 + seed + better) for step in range(0, 1001, 100)]
            evaluated_run(folder / f"{algorithm}-CartPole-v1" / f"seed-{seed}", returns, algorithm=algorithm, seed=seed)


@pytest.mark.long
def test_two_algorithms_are_trained_by_commands_with_three_seeds_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--env", "CartPole-v1", "--steps", "600", "--seeds", "1", "2", "3", *SMALL]
    command(monkeypatch, "train", "--algorithm", "dqn", *arguments)
    printed = capsys.readouterr().out
    assert "Returns of each seed" in printed
    assert "Interquartile mean of the final returns: " in printed
    command(monkeypatch, "train", "--algorithm", "ppo", *arguments)
    capsys.readouterr()
    command(monkeypatch, "compare", "runs", "-o", "comparison.md", "--picture", "intervals.png")
    printed = capsys.readouterr().out
    assert "Scores in CartPole-v1" in printed
    assert "Probability of improvement over DQN" in printed
    assert "mean returns of evaluations, by greedy actions" in printed
    assert (tmp_path / "intervals.png").stat().st_size > 10_000
    rows = [line.split(" | ") for line in (tmp_path / "comparison.md").read_text().splitlines() if "| 3 |" in line]
    names = [row[0].strip("| ") for row in rows]
    assert names[:2] == ["DQN", "PPO"]
    finals = [prl.read_evaluations(f"runs/DQN-CartPole-v1/seed-{seed}")[-1]["mean"] for seed in (1, 2, 3)]
    comparison = prl.compare_runs(["runs"])
    assert f"\n\n{comparison.answer}\n\n" in (tmp_path / "comparison.md").read_text()
    # The interquartile mean of three values leaves out none of them.
    assert comparison.results[0].iqm.value == pytest.approx(sum(finals) / 3)


@pytest.mark.long
def test_six_runs_are_plotted_and_compared_without_being_modified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    six_runs(tmp_path / "runs")
    before = {file: file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file()}
    command(monkeypatch, "plot", "runs", "-o", "curves.png", "--x", "seconds")
    command(monkeypatch, "plot", "runs/DQN-CartPole-v1", "-o", "curves.svg", "--statistic", "median")
    assert capsys.readouterr().out.split() == ["curves.png", "curves.svg"]
    assert matplotlib.image.imread(tmp_path / "curves.png").shape[1] == 1200
    assert (tmp_path / "curves.svg").stat().st_size < 100_000
    command(monkeypatch, "compare", "-o", "comparison.csv", "--baseline", "DQN", "--profile", "profile.svg")
    printed = capsys.readouterr().out
    assert "open: 3 more seeds" in printed
    with (tmp_path / "comparison.csv").open() as file:
        dqn, ppo = csv.DictReader(file)
    assert [float(row["iqm"]) for row in (dqn, ppo)] == [202, 302]
    assert [float(row["std"]) for row in (dqn, ppo)] == [1, 1]
    assert (ppo["baseline"], float(ppo["probability_of_improvement"]), ppo["seeds_needed"]) == ("DQN", 1.0, "6")
    assert {file: file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file()} == before


@pytest.mark.long
def test_names_order_and_size_are_options_of_figures_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    six_runs(tmp_path / "runs")
    look = ["--names", "DQN", "deep Q", "PPO", "ours", "--order", "ours", "--size", "4", "3", "--title", "Balance"]
    command(monkeypatch, "plot", "runs", "-o", "curves.pdf", *look, "--y-label", "score")
    command(monkeypatch, "plot", "runs", "-o", "curves.csv", *look)
    with (tmp_path / "curves.csv").open() as file:
        assert list(dict.fromkeys(row["group"] for row in csv.DictReader(file))) == ["ours", "deep Q"]
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    capsys.readouterr()
    command(monkeypatch, "compare", "runs", "-o", "intervals.png", "--profile", "profile.pdf", *look)
    printed = capsys.readouterr().out
    assert printed.index("ours") < printed.index("deep Q")
    assert "Probability of improvement over ours" in printed
    assert matplotlib.image.imread(tmp_path / "intervals.png").shape[:2] == (450, 600)
    assert (tmp_path / "profile.pdf").read_bytes().startswith(b"%PDF")
    legend = ["--font-size", "7", "--legend-columns", "1", "--legend-place", "above", "--no-note", "--no-counts"]
    command(monkeypatch, "plot", "runs", "-o", "legend.png", *look, *legend, "--no-training")
    command(monkeypatch, "plot", "runs", "-o", "usual.png", *look)
    assert (tmp_path / "legend.png").read_bytes() != (tmp_path / "usual.png").read_bytes()
    command(monkeypatch, "compare", "runs", "-o", "table.tex", *look)
    assert "\n    ours & 3 & 302.0 & " in (tmp_path / "table.tex").read_text()


def test_reference_returns_are_given_for_each_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for env in ("A-v0", "B-v0"):
        for seed in (1, 2):
            evaluated_run(tmp_path / f"{env}-{seed}", [(1000, 50.0)], env=env, seed=seed)
    references = ["--reference", "A-v0", "0", "100", "--reference", "B-v0", "0", "200"]
    command(monkeypatch, "compare", tmp_path, *references)
    printed = capsys.readouterr().out
    assert "A-v0: 0 is 0, and 100 is 1 (given)." in printed
    assert "0.38" in printed[printed.index("Normalised scores in all environments") :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("compare", "nowhere"),
            "error: nowhere does not exist: expected a run folder, or a folder with runs below it",
        ),
        (
            ("compare", "runs", "-o", "table.txt"),
            "error: a comparison is written to a file that ends in .md, .tex, .csv, .png, .svg, .pdf, got table.txt",
        ),
        (
            ("compare", "runs", "--picture", "a.jpg"),
            "error: a figure is a picture, or its numbers; its name must end in",
        ),
        (
            ("compare", "runs", "--baseline", "SAC"),
            "error: there is no group 'SAC' to use as baseline; choose from: DQN; PPO",
        ),
        (
            ("compare", "runs", "--reference", "CartPole-v1", "5", "5"),
            "error: the first reference of CartPole-v1 must be below the second, got 5 and 5",
        ),
        (
            ("compare", "runs", "--reference", "CartPole-v1", "0", "inf"),
            "error: the references of CartPole-v1 must be finite, got 0 and inf",
        ),
        (("compare", "runs", "--metric", "test/retrun"), "has not logged 'test/retrun'; did you mean test/return?"),
        (
            ("plot", "runs", "-o", "curve.jpg"),
            "error: a figure is a picture, or its numbers; its name must end in .png, .svg, .pdf or .csv",
        ),
        (("plot", "runs", "--metric", "x"), "has not logged 'x'; it has test/return"),
    ],
)
def test_compare_and_plot_refuse_invalid_arguments_and_write_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    six_runs(tmp_path / "runs")
    with pytest.raises(SystemExit) as raised:
        command(monkeypatch, *arguments)
    assert message in str(raised.value)
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_every_table_of_the_terminal_notes_runs_whose_last_values_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [Trial({"gamma": "0.9"}, seed, tmp_path / "gamma-0.9") for seed in (1, 2)]
    for trial in trials:
        evaluated_run(trial.run, [(10, 500.0), (20, math.nan)], seed=trial.seed)
    expected = "2 of 2 runs in CartPole-v1 end with values that are not finite"
    command(monkeypatch, "compare", str(tmp_path))
    assert f"- DQN: {expected}" in capsys.readouterr().out
    show_results([trial.run for trial in trials], tmp_path / "picture.png")
    assert f"all seeds: {expected}" in capsys.readouterr().out
    write_results(trials, tmp_path)
    assert f"gamma-0.9: {expected}" in capsys.readouterr().out
