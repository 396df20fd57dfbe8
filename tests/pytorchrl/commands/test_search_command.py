"""``python -m pytorchrl sweep --trials``: Optuna chooses values for runs in processes, which are killed and resumed."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.sweeps import search, trials
from pytorchrl.commands.sweeps.search import Range, Search, range_of
from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.scheme.compatibility import CompositionError
from storages.persistent.log.lock import Lock
from tests.support.profiles import FULL

optuna = pytest.importorskip("optuna")

ARGUMENTS = ["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset", "--actor.hidden-sizes", "8"]
ARGUMENTS += ["--algorithm.start-steps", "40", "--algorithm.test-every", "100", "--algorithm.num-test-episodes", "2"]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "sweep", *arguments])
    main()


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def search_of() -> Iterator[Callable[..., Search]]:
    """Makes searches, and closes them after the test."""
    with ExitStack() as searches:
        yield lambda *arguments, **settings: searches.enter_context(closing(Search(*arguments, **settings)))


@FULL
@pytest.mark.long
def test_a_killed_search_of_six_trials_in_two_processes_resumes_and_writes_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*ARGUMENTS, "--steps", "1000", "--checkpoint-every", "100", "--trials", "6", "--processes", "2"]
    arguments += ["--vary", "algorithm.lr", "1e-5..1e-2:log", "--vary", "algorithm.mini_batch_size", "8..32"]
    arguments += ["--vary", "algorithm.gamma", "0.9", "0.99"]
    folder = tmp_path / "runs" / "sweep-DQN-CartPole-v1"
    sweep = subprocess.Popen(
        [sys.executable, "-m", "pytorchrl", "sweep", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert sweep.stdout is not None
    with sweep.stdout as lines:
        # At this moment, another trial is being trained.
        assert next(line for line in lines if "trial-" in line and "final return" in line)
        sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    command(monkeypatch, *arguments)
    assert "6 trials in runs/sweep-DQN-CartPole-v1, 2 at a time" in capfd.readouterr().out
    found = rows(folder)
    assert {row["trial"] for row in found} == {f"trial-{number}" for number in range(6)}
    assert {row["state"] for row in found} <= {"complete", "pruned"}
    for row in found:
        config = json.loads((folder / row["trial"] / "seed-1" / "config.json").read_text())
        hyper_parameters = config["algorithm"]["hyper_parameters"]
        assert 1e-5 <= hyper_parameters["lr"] == float(row["algorithm.lr"]) <= 1e-2
        assert 8 <= hyper_parameters["mini_batch_size"] == int(row["algorithm.mini-batch-size"]) <= 32
        assert hyper_parameters["gamma"] == float(row["algorithm.gamma"])
        steps = [one["steps"] for one in prl.read_evaluations(folder / row["trial"] / "seed-1")]
        # No evaluation was made twice, and trials that were not pruned have all of them.
        assert steps == list(range(100, 100 * len(steps) + 1, 100))
        assert row["state"] == "pruned" or len(steps) == 10
    # A larger number of trials continues the same study.
    arguments[arguments.index("6")] = "7"
    command(monkeypatch, *arguments)
    assert len(rows(folder)) == 7


Train = Callable[..., int]


def fake_training(returns: Callable[[Trial], Sequence[float]], stops_at: int | None = None) -> Train:
    """Training with the given returns, evaluated every 100 steps; `stops_at` ends it early, as a signal does."""

    def train(trial: Trial, of_train: Sequence[str], should_prune: Callable[[], bool] = lambda: False) -> int:
        trial.run.mkdir(parents=True, exist_ok=True)
        for number, mean in enumerate(returns(trial), start=1):
            with (trial.run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"steps": 100 * number, "seconds": 1.0, "test/return": mean}) + "\n")
            if should_prune() or number == stops_at:
                return 0
        return 0

    return train


def quality(trial: Trial) -> float:
    return -abs(float(trial.values["x"]) - 0.3)


@pytest.mark.long
def test_later_trials_choose_values_near_those_with_high_returns(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "train", fake_training(lambda trial: [quality(trial)] * 4))
    study = search_of({"x": ["0.0..1.0"]}, tmp_path, 400, [1], prune=False)
    assert study.run(40, [], 1) == 0
    study.write_results()
    found = rows(tmp_path)
    best = [float(row["x"]) for row in found[:10]]
    assert max(abs(value - 0.3) for value in best) < 0.1
    distances = {int(row["trial"].removeprefix("trial-")): abs(float(row["x"]) - 0.3) for row in found}
    first, last = (sum(distances[number] for number in numbers) / 10 for numbers in (range(10), range(30, 40)))
    assert last < first


@pytest.mark.long
def test_trials_below_the_median_of_others_are_pruned(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Later trials are worse.
    monkeypatch.setattr(
        search, "train", fake_training(lambda trial: [-int(trial.folder.name.removeprefix("trial-"))] * 4)
    )
    study = search_of({"x": ["0.0..1.0"]}, tmp_path, 400, [1])
    study.run(8, [], 1)
    study.write_results()
    states = {row["trial"]: row["state"] for row in rows(tmp_path)}
    assert [states[f"trial-{number}"] for number in range(8)] == ["complete"] * 5 + ["pruned"] * 3
    assert len(Trial({}, 1, tmp_path / "trial-7").evaluations()) < 4


@pytest.mark.long
def test_a_stopped_trial_resumes_with_its_values_and_counts_once(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vary = {"x": ["1e-4..1:log"], "y": ["2..9"], "z": ["a", "b"]}
    seen: list[dict[str, str]] = []

    def returns(trial: Trial) -> list[float]:
        seen.append(dict(trial.values))
        return [1.0] * 4

    monkeypatch.setattr(search, "train", fake_training(returns, stops_at=2))
    stopped = search_of(vary, tmp_path, 400, [1, 2])
    trial = stopped._next(3)
    assert trial is not None
    stopped._train(trial, [])
    monkeypatch.setattr(search, "train", fake_training(returns))
    again = search_of(vary, tmp_path, 400, [1, 2])
    assert again.run(3, [], 1) == 0
    # Two seeds of each.
    assert len(seen) == 2 + 3 * 2
    assert seen[2] == seen[0]
    again.write_results()
    assert [row["state"] for row in rows(tmp_path)] == ["complete"] * 3
    with pytest.raises(CompositionError, match=r"holds a study that varies x 1e-4.*, y 2.*, z a b, this one varies x"):
        search_of({"x": ["0..1"]}, tmp_path, 400, [1])


@pytest.mark.long
def test_two_searches_that_share_a_study_train_each_trial_once(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def returns(trial: Trial) -> list[float]:
        trained.append(trial.folder.name)
        return [1.0] * 4

    monkeypatch.setattr(search, "train", fake_training(returns))
    first, second = (search_of({"x": ["0.0..1.0"]}, tmp_path, 400, [1], sampler="random") for _ in range(2))
    running = first._next(4)
    assert running is not None
    # As another process does meanwhile: the running trial is not its own.
    assert second.run(3, [], 1) == 0
    assert trained == ["trial-1", "trial-2"]
    assert first._study.trials[0].state.name == "RUNNING"
    first._train(running, [])
    assert first.run(4, [], 1) == 0
    assert trained == ["trial-1", "trial-2", "trial-0", "trial-3"]
    values = {trial.params["x"] for trial in first._study.trials}
    assert len(values) == 4, "each trial has random numbers of its own"


def test_a_trial_of_a_search_that_ended_is_adopted_once(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "train", fake_training(lambda trial: [1.0] * 4, stops_at=1))
    first, second = (search_of({"x": ["0..1"]}, tmp_path, 400, [1]) for _ in range(2))
    assert first.run(1, [], 1) == 0
    assert first._study.trials[0].state.name == "RUNNING"
    adopted = second._next(1)
    assert adopted is not None
    assert adopted.number == 0
    assert second._next(1) is None
    assert first._next(1) is None


def test_a_run_that_another_process_trains_is_no_failure(
    search_of: Callable[..., Search],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = search_of({"x": ["0..1"]}, tmp_path, 400, [1])
    run = tmp_path / "trial-0" / "seed-1"
    run.mkdir(parents=True)
    monkeypatch.setattr(trials, "_SECONDS_TO_WAIT", 0.0)
    holder = Lock(run)
    try:
        assert study.run(1, [], 1) == 0
    finally:
        holder.release()
    assert study._study.trials[0].state.name == "RUNNING"
    assert "is in use by process" in capsys.readouterr().out


def test_trials_that_fail_are_counted(
    search_of: Callable[..., Search], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "train", lambda *arguments: 1)
    study = search_of({"x": ["0..1"]}, tmp_path, 400, [1], sampler="random")
    assert study.run(2, [], 1) == 2
    study.write_results()
    assert [row["state"] for row in rows(tmp_path)] == ["fail", "fail"]


@pytest.mark.parametrize(
    ("text", "between"),
    [
        ("1e-5..1e-2:log", Range(1e-5, 1e-2, log=True)),
        ("16..256", Range(16, 256, log=False)),
        ("-1..0.5", Range(-1.0, 0.5, log=False)),
        ("relu", None),
        ("0.9", None),
    ],
)
def test_a_range_is_parsed_from_two_numbers(text: str, between: Range | None) -> None:
    assert range_of(text) == between
    assert between is None or range_of(text).is_whole == (text == "16..256")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algorithm.lr", "1e-2..1e-5", "--trials", "2"], "'1e-2..1e-5' must go from a smaller number to a larger one"),
        (["algorithm.lr", "0..1:log", "--trials", "2"], "both above 0 with :log"),
        (["algorithm.lr", "1..a", "--trials", "2"], "'1..a' is no range of numbers, such as 1e-5..1e-2:log"),
        (["algorithm.lr", "1..2"], "algorithm.lr varies within a range; give the number of trials: --trials 20"),
        (["algorithm.lr", "1..2", "3", "--trials", "2"], "algorithm.lr mixes a range with other values"),
        (["algorithm.gamma", "0.9..1.5", "--trials", "2"], r"DQN: gamma must lie in \[0, 1\], got 1.5"),
        (["algorithm.gamma", "0.9..1", "--trials", "0"], "--trials must be at least 1, got 0"),
        (["algorithm.gamma", "0.9", "--processes", "0"], "--processes must be at least 1, got 0"),
        (
            ["algorithm.gamma", "0.9..1", "--trials", "2", "--algorithm.test-every", "0"],
            "enable them by --algorithm.test",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_training(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        command(monkeypatch, *ARGUMENTS, "--vary", *arguments)
    assert not list(tmp_path.iterdir())


def test_without_optuna_the_error_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        SystemExit, match=r'need the package optuna; the extra "optuna" brings it: pip install "pytorchrl-toolkit\[opt'
    ):
        command(monkeypatch, *ARGUMENTS, "--vary", "algorithm.lr", "1e-4..1e-3", "--trials", "2")
    assert not list(tmp_path.iterdir())
