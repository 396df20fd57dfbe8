"""``python -m pytorchrl sweep``: all combinations of values, in processes, which are killed and resumed."""

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.sweeps import trials
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.run_lock import RunLock
from tests.support.profiles import FULL

ARGUMENTS = ["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset", "--actor.hidden-sizes", "8"]
ARGUMENTS += ["--algorithm.start-steps", "40", "--algorithm.test-every", "100", "--algorithm.num-test-episodes", "2"]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "sweep", *arguments])
    main()


def rows(folder: Path) -> list[list[str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.reader(file))


def test_a_dry_sweep_lists_its_trials_checks_them_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vary = ["--vary", "env.wrappers", "[]", "FlattenObservation", "--seeds", "1", "2", "--dry-run"]
    command(monkeypatch, *ARGUMENTS, *vary)
    printed = capsys.readouterr().out
    assert printed.count("runs/sweep-DQN-CartPole-v1/env.wrappers=FlattenObservation") == 2
    assert "4 runs: not trained" in printed
    with pytest.raises(SystemExit, match="JoinActions: the action space must be a Dict or a Tuple"):
        command(monkeypatch, *ARGUMENTS, *vary[:3], "JoinActions", "--dry-run")
    command(monkeypatch, *ARGUMENTS, "--vary", "algorithm.gamma", "0.9..0.99", "--trials", "3", "--dry-run")
    assert "3 trials of 100,000 steps in runs/sweep-DQN-CartPole-v1: not trained" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@FULL
@pytest.mark.long
def test_a_killed_sweep_resumes_and_writes_a_table_of_all_combinations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vary = ["--vary", "algorithm.gamma", "0.9", "0.99", "--vary", "algorithm.test_every", "200", "400"]
    arguments = [*ARGUMENTS, *vary, "--steps", "2000", "--checkpoint-every", "100", "--processes", "2"]
    first = tmp_path / "runs" / "sweep-DQN-CartPole-v1" / "algorithm.gamma=0.9,algorithm.test-every=200" / "seed-1"
    sweep = subprocess.Popen(
        [sys.executable, "-m", "pytorchrl", "sweep", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert sweep.stdout is not None
    with sweep.stdout as lines:
        # At this moment, another run is being trained, and two have not begun.
        assert next(line for line in lines if line.startswith("1 of 4: "))
        sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    command(monkeypatch, *arguments)
    printed = capfd.readouterr().out
    assert "4 runs in runs/sweep-DQN-CartPole-v1, 2 at a time" in printed
    header, *table = rows(tmp_path / "runs" / "sweep-DQN-CartPole-v1")
    assert header[:4] == ["algorithm.gamma", "algorithm.test-every", "seeds", "iqm"]
    assert sorted(row[:2] for row in table) == [["0.9", "200"], ["0.9", "400"], ["0.99", "200"], ["0.99", "400"]]
    means = [float(row[3]) for row in table]
    assert means == sorted(means, reverse=True)
    assert (first.parents[1] / "learning_curves.png").stat().st_size > 10_000
    assert [row["steps"] for row in prl.read_evaluations(first)] == list(range(200, 2001, 200))
    assert "of 2,000 steps" in (first.parent / "output.txt").read_text()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_to_a_sweep_alone_ends_its_runs_which_save_checkpoints(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*ARGUMENTS, "--vary", "algorithm.gamma", "0.9", "0.99", "--steps", "200000", "--log-dir", "swept"]
    run = tmp_path / "swept" / "algorithm.gamma=0.9" / "seed-1"
    sweep = subprocess.Popen(
        [sys.executable, "-m", "pytorchrl", "sweep", *arguments, "--checkpoint-every", "100000"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with sweep:
        while not (run / "metrics.jsonl").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                sweep.wait(0.05)
        sweep.send_signal(number)
        assert sweep.stdout is not None
        assert "Stopped; run the same command again to continue." in sweep.stdout.read()
    assert sweep.returncode == 130
    saved = checkpoint.load(run / "checkpoint.pt")["scheme"]["collector"]["steps"]
    assert 0 < saved < 100_000
    with RunLock(run):  # no process is left in it
        assert not (tmp_path / "swept" / "algorithm.gamma=0.99").exists()


def test_an_invalid_value_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"error: DQN: gamma must lie in \[0, 1\], got 1.5"):
        command(monkeypatch, *ARGUMENTS, "--vary", "algorithm.gamma", "0.9", "1.5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (["--vary", "algorithm.gamma"], "error: --vary algorithm.gamma needs values"),
        (["--vary", "algorithm.gamma", "0.9", "0.9"], "error: two combinations of the sweep have the same folder name"),
        (
            ["--vary", "algorithm.test-every", "200", "--vary", "algorithm.test_every", "400"],
            "error: --vary algorithm.test-every is given twice; list all its values after one",
        ),
        (["--vary", "algorithm.gamma", "0.9", "--seeds", "2", "2"], "error: seeds must differ"),
    ],
)
def test_a_sweep_with_missing_or_repeated_values_or_seeds_is_refused(
    vary: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=message):
        command(monkeypatch, *ARGUMENTS, *vary)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a hyper-parameter to vary: --vary algorithm.lr 1e-3 3e-4"),
        (["--vary", "algorithm.gama", "0.9"], "there is no option --algorithm.gama; did you mean --algorithm.gamma?"),
    ],
)
def test_a_sweep_of_no_or_of_an_unknown_hyper_parameter_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, *ARGUMENTS, *arguments)
    assert message in capsys.readouterr().err


def test_a_sweep_says_once_what_its_values_replace_of_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pytorchrl.commands.sweeps.sweep.train", lambda trial, options: 1)
    values = ["--vary", "algorithm.lr", "1e-3", "3e-4", "--log-dir", str(tmp_path)]
    with pytest.raises(SystemExit, match="2 of 2 runs failed"):
        command(monkeypatch, "--algorithm", "ppo", "--env", "CartPole-v1", *values)
    assert capsys.readouterr().out.count("algorithm.lr stays constant, where the preset has LinearSchedule") == 1


@pytest.mark.long
def test_a_run_that_fails_is_counted_and_its_output_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # The folder of the trial already contains a run of another composition.
    folder = tmp_path / "runs" / "sweep-DQN-CartPole-v1" / "algorithm.gamma=0.9"
    monkeypatch.setattr(sys, "argv", ["x", "train", *ARGUMENTS, "--steps", "50", "--log-dir", os.fspath(folder)])
    main()
    with pytest.raises(SystemExit, match=r"error: 1 of 1 runs failed; output\.txt in the folder of a trial says"):
        command(monkeypatch, *ARGUMENTS, "--steps", "50", "--vary", "algorithm.gamma", "0.9")
    assert "1 of 1: runs/sweep-DQN-CartPole-v1/algorithm.gamma=0.9/seed-1: failed" in capfd.readouterr().out
    assert "algorithm.gamma: 0.9 here, 0.99 in the checkpoint" in (folder / "output.txt").read_text()


def files_of(folder: Path) -> dict[Path, int]:
    """The files of runs but their locks, with the times of their last changes."""
    files = [path for path in folder.rglob("*") if "seed-" in str(path) and path.name != "lock"]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.long
def test_a_continued_sweep_starts_no_process_for_runs_that_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*ARGUMENTS, "--steps", "100", "--log-to", "tensorboard", "--vary", "algorithm.gamma", "0.9"]
    command(monkeypatch, *arguments)
    before = files_of(tmp_path / "runs")
    started: list[list[str]] = []
    start = subprocess.Popen

    def popen(arguments: list[str], **options: object) -> object:
        started.append(arguments)
        return start(arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(trials.subprocess, "Popen", popen)
    command(monkeypatch, *arguments, "0.99")
    assert [one[one.index("--log-dir") + 1] for one in started] == ["runs/sweep-DQN-CartPole-v1/algorithm.gamma=0.99"]
    assert before.items() <= files_of(tmp_path / "runs").items()
    printed = capfd.readouterr().out
    assert "of 2: runs/sweep-DQN-CartPole-v1/algorithm.gamma=0.9/seed-1: final return" in printed
    # More steps are another target, to which each run goes on.
    command(monkeypatch, *arguments, "--steps", "120")
    assert len(started) == 2
