"""Pages that compare learning: interrupted runs are continued, finished ones reused, and missing ones marked."""

import importlib
import importlib.util
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from benchmarks.learning import learning_page, learning_runs, learning_table
from tests.support import warm_interpreter

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "learning" / "learning_page.py"


@pytest.fixture
def benchmark() -> Any:
    return learning_table


def write_result(benchmark: Any, run: Any, greedy_return: float) -> None:
    run.folder.mkdir(parents=True)
    result = benchmark.Result(run.target_steps, greedy_return, greedy_return / 2, 1234.4)
    run.result_file.write_text(json.dumps(asdict(result)))
    records = [{"steps": step, "train/return": 5.0 * step, "train/episodes": 2} for step in (100, 200, 300)]
    (run.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


def row_of(algorithm: str, page: Path) -> list[str]:
    lines = page.read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| `{algorithm}` |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_page_shows_finished_runs_and_marks_missing_ones(benchmark: Any, tmp_path: Path) -> None:
    runs = benchmark.runs_of("values", "cartpole", tmp_path / "runs")
    for run, greedy_return in zip(runs, (500.0, 77.25), strict=False):
        write_result(benchmark, run, greedy_return)
    of_dqn = [run for run in runs if run.algorithm == "DQN"]
    for run, greedy_return in zip(of_dqn[1:], (460.0, 20.0), strict=True):
        write_result(benchmark, run, greedy_return)
    benchmark.make_page(
        "values", (), benchmark.Arguments(docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    )
    page = tmp_path / "docs" / "values.md"
    assert row_of("DQN", page) == ["`DQN`", "500.0", "460.0", "20.0", "460.0", "163.3", "1,234", "450", "yes"]
    second = runs[1].algorithm
    assert row_of(second, page) == [f"`{second}`", "77.2", "missing", "missing", "-", "38.6", "1,234", "450", "-"]
    assert "(values-cartpole.png)" in page.read_text()
    assert "further seeds" not in page.read_text()
    assert (tmp_path / "docs" / "values-cartpole.png").exists()
    assert "(values-breakout.png)" not in page.read_text()


def test_the_result_of_a_finished_run_remains_after_its_folder_is_deleted(benchmark: Any, tmp_path: Path) -> None:
    run = benchmark.runs_of("values", "cartpole", tmp_path / "runs")[0]
    write_result(benchmark, run, 77.25)
    arguments = benchmark.Arguments(docs=tmp_path, runs=tmp_path / "runs", kept=tmp_path / "kept", processes=0)
    benchmark.make_page("values", (), arguments)
    page, picture = (tmp_path / "values.md").read_text(), (tmp_path / "values-cartpole.png").read_bytes()
    assert "| 77.2 |" in page
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "values-cartpole.png").unlink()
    benchmark.make_page("values", (), arguments)
    assert (tmp_path / "values.md").read_text() == page
    assert (tmp_path / "values-cartpole.png").read_bytes() == picture


def test_runs_of_added_seeds_are_shown_and_count_in_the_mean(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = benchmark.runs_of("values", "breakout", tmp_path / "runs", seeds=(7,))
    ours, theirs, partly = "double DQN", "DQN of stable-baselines3", "QRDQN of sb3-contrib"
    returns = {(ours, 1): 3.0, (ours, 2): 5.0, (ours, 7): 10.0, (theirs, 1): 1.0, (theirs, 2): 2.0, (partly, 7): 9.0}
    for run in runs:
        if (run.algorithm, run.seed) in returns:
            write_result(benchmark, run, returns[run.algorithm, run.seed])
    folders: dict[str, Any] = {"docs": tmp_path, "runs": tmp_path / "runs", "kept": tmp_path / "kept", "processes": 0}
    benchmark.make_page("values", (), benchmark.Arguments(seeds=(7,), **folders))
    page = (tmp_path / "values.md").read_text()
    assert row_of(ours, tmp_path / "values.md")[1:5] == ["3.0", "5.0", "7: 10.0", "6.0"]
    assert row_of(theirs, tmp_path / "values.md")[1:5] == ["1.0", "2.0", "-", "1.5"]
    assert row_of(partly, tmp_path / "values.md")[1:5] == ["missing", "missing", "7: 9.0", "-"]
    shutil.rmtree(tmp_path / "runs")
    capsys.readouterr()
    benchmark.make_page("values", ("breakout",), benchmark.Arguments(**folders))
    assert capsys.readouterr().out.startswith("20 runs, 4 of them finished\n")
    assert (tmp_path / "values.md").read_text() == page


@pytest.mark.long
def test_an_interrupted_run_continues_from_its_checkpoint(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = benchmark.runs_of("values", "cartpole", tmp_path / "runs", target_steps=1_300)[0]
    train, begun_at = prl.Learner.run, []

    def stopped_half_way(learner: prl.Learner, checkpoint_every: int | None = None) -> bool:
        while learner.scheme.steps < 1_100:
            learner.step()
        learner.save_checkpoint()
        return False

    def recorded_run(learner: prl.Learner, checkpoint_every: int | None = None) -> bool:
        begun_at.append(learner.scheme.steps)
        return train(learner, checkpoint_every=checkpoint_every)

    monkeypatch.setattr(prl.Learner, "run", stopped_half_way)
    learning_runs.make_run(run)
    assert run.result is None
    assert 1_000 < run.steps < run.target_steps
    monkeypatch.setattr(prl.Learner, "run", recorded_run)
    learning_runs.make_run(run)
    assert begun_at == [1_100]
    assert run.result.steps == run.steps == 1_300
    assert 8 <= run.result.greedy_return <= 500


@pytest.mark.long
def test_the_command_trains_and_reuses_finished_runs(tmp_path: Path) -> None:
    command = [str(SCRIPT), "values", "--only", "cartpole", "--algorithms", "DQN", "--seeds", "1", "2"]
    command += ["--target-steps", "1300", "--docs", str(tmp_path / "docs"), "--runs", str(tmp_path / "runs")]
    command += ["--kept", str(tmp_path / "kept")]
    first = warm_interpreter.run(command, tmp_path, timeout=250)
    assert first.returncode == 0, first.stderr
    assert "2 runs, 0 of them finished\n" in first.stdout
    page = (tmp_path / "docs" / "values.md").read_text()
    assert row_of("DQN", tmp_path / "docs" / "values.md")[3] == "missing"
    again = warm_interpreter.run(command, tmp_path, timeout=100)
    assert "2 runs, 2 of them finished\n" in again.stdout
    assert (tmp_path / "docs" / "values.md").read_text() == page


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    "page",
    [
        "values",
        "policy-learning",
        "mujoco",
        "mujoco-million",
        "minatar",
        "replay-strategies",
        "bodies",
        "latent-models",
    ],
)
def test_every_composition_of_a_page_can_be_trained(benchmark: Any, page: str) -> None:
    for task in benchmark.PAGES[page].tasks.values():
        if task.package is not None and importlib.util.find_spec(task.package) is None:
            pytest.skip(f"the package {task.package} is not installed")
        for composition in task.compositions.values():
            scheme = prl.Scheme(**composition.compose(), train_envs_factory=task.envs(composition.num_envs))
            assert scheme.algorithm.test_every == 0, "evaluations would count in the measured time"
            scheme.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ["PPO of stable-baselines3", "TD3 of stable-baselines3", "TRPO of sb3-contrib"])
def test_algorithms_of_other_libraries_are_trained_and_evaluated(benchmark: Any, tmp_path: Path, name: str) -> None:
    pytest.importorskip("sb3_contrib", reason="the package sb3-contrib is not installed")
    pytest.importorskip("mujoco", reason="the package mujoco is not installed")
    runs = benchmark.runs_of("mujoco", "hopper", tmp_path, target_steps=300)
    run = next(run for run in runs if run.algorithm == name)
    learning_runs.make_run(run)
    assert run.result.steps == 300
    assert 0 < run.result.greedy_return < 4_000
    assert run.result.training_return is not None


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize(
    ("task_name", "name"),
    [("hopper", name) for name in ("SAC", "TD3", "DDPG", "PPO", "TRPO")]
    + [("hopper-efficient", name) for name in ("TQC", "CrossQ")],
)
def test_a_peer_has_networks_of_the_size_of_ours_and_the_same_settings(
    benchmark: Any, task_name: str, name: str
) -> None:
    pytest.importorskip("sb3_contrib", reason="the package sb3-contrib is not installed")
    pytest.importorskip("mujoco", reason="the package mujoco is not installed")
    task = benchmark.PAGES["mujoco"].tasks[task_name]
    scheme = prl.Scheme(**task.compositions[name].compose(), train_envs_factory=task.envs(1))
    (peer,) = (peer for peer in task.peers if peer.startswith(f"{name} of"))
    theirs = importlib.import_module(task.peer_module)._MAKE[peer](gym.make(task.env), {"device": "cpu"})
    learnt = (each for key, each in theirs.policy.named_parameters() if "_target." not in key)
    assert sum(each.numel() for each in scheme.actor.parameters()) == sum(each.numel() for each in learnt)
    ours: Any = scheme.algorithm
    assert ours.gamma == theirs.gamma
    if isinstance(ours, prl.OffPolicyAlgorithm):
        assert ours.lr_pi == ours.lr_q == theirs.learning_rate
        assert (ours.mini_batch_size, ours.start_steps) == (theirs.batch_size, theirs.learning_starts)
        assert 1 - ours.polyak == pytest.approx(theirs.tau)
    scheme.close()


def test_a_task_on_request_is_on_the_page_once_one_of_its_runs_has_finished(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders: dict[str, Any] = {"docs": tmp_path, "runs": tmp_path / "runs", "kept": tmp_path / "kept", "processes": 0}
    learning_page.PAGE_COMMANDS["bodies"](benchmark.Arguments(**folders))
    # Four bodies with two seeds each: none of the tasks on request.
    assert capsys.readouterr().out.startswith("8 runs, 0 of them finished\n")
    assert "Walker2d" not in (tmp_path / "bodies.md").read_text()
    write_result(benchmark, benchmark.runs_of("bodies", "walker2d", tmp_path / "runs")[0], 123.0)
    learning_page.PAGE_COMMANDS["bodies"](benchmark.Arguments(**folders), only=("walker2d",))
    assert "1 of 20 runs have finished" in " ".join((tmp_path / "bodies.md").read_text().split())
    assert row_of("SimBa", tmp_path / "bodies.md")[1:3] == ["missing", "missing"]
    assert "| `MLP` | 123.0 | missing | missing |" in (tmp_path / "bodies.md").read_text()


@pytest.mark.long
def test_the_callbacks_of_a_composition_are_called_in_its_runs(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = benchmark.PAGES["values"].tasks["cartpole"]
    resetting = replace(task.compositions["DQN"], callbacks=lambda: [prl.ResetNetworks(every=30)])
    page = replace(benchmark.PAGES["values"], tasks={"cartpole": replace(task, compositions={"DQN": resetting})})
    monkeypatch.setattr(learning_runs, "PAGES", {"values": page})
    monkeypatch.setattr(learning_table, "PAGES", {"values": page})
    run = benchmark.runs_of("values", "cartpole", tmp_path / "runs", target_steps=1_300)[0]
    learning_runs.make_run(run)
    assert any(record.get("train/resets") for record in run.records)


def test_strategies_are_compared_over_the_tasks_that_are_complete(benchmark: Any, tmp_path: Path) -> None:
    returns = {
        ("hopper", "uniform"): (90.0, 100.0, 110.0),
        ("hopper", "PER"): (150.0, 150.0, 150.0),
        ("asterix", "uniform"): (2.0, 2.0, 2.0),
        ("asterix", "PER"): (1.0, 1.0, 1.0),
        ("asterix", "ERE"): (8.0, 8.0),
        ("halfcheetah", "PER"): (7.0, 7.0, 7.0),
    }
    for (task, algorithm), found in returns.items():
        runs = benchmark.runs_of("replay-strategies", task, tmp_path / "runs")
        for run in runs:
            if run.algorithm == algorithm and run.seed <= len(found):
                write_result(benchmark, run, found[run.seed - 1])
    folders = benchmark.Arguments(docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    benchmark.make_page("replay-strategies", (), folders)
    page = tmp_path / "docs" / "replay-strategies.md"
    # One of six scores is left out at either end. Three draws of the lowest return of three have a chance of 1 in 27.
    assert row_of("PER", page) == ["`PER`", "1.00", "1.00 to 1.00", "asterix, hopper"]
    assert row_of("uniform", page)[1:3] == ["1.00", "0.95 to 1.05"]
    assert row_of("ERE", page) == ["`ERE`", "-", "-", "missing"]


def test_atari_scores_are_compared_in_units_of_the_human_and_with_published_ones(
    benchmark: Any, tmp_path: Path
) -> None:
    # Random actions reach 227.8 in Alien and -20.7 in Pong, the human 7,127.7 and 14.6.
    returns = {("alien", 1): 227.8, ("alien", 2): 7_127.7, ("pong", 1): 14.6, ("pong", 2): 14.6}
    for task in ("alien", "pong"):
        for run in benchmark.runs_of("atari-100k", task, tmp_path / "runs", seeds=(1, 2)):
            if run.algorithm == "data-efficient Rainbow":
                write_result(benchmark, run, returns[task, run.seed])
    folders = benchmark.Arguments(
        docs=tmp_path, runs=tmp_path / "runs", kept=tmp_path / "kept", seeds=(1, 2), processes=0
    )
    benchmark.make_page("atari-100k", (), folders)
    page = (tmp_path / "atari-100k.md").read_text()
    # The lowest of four scores, 0, and the highest, 1, are left out; means are 0.5 and 1.
    assert "| data-efficient Rainbow | 2 | 4 | 1.000 | 0.500 to 1.000 | 0.750 | 0.750 |" in page
    # Published are 739.9 in Alien and -19.3 in Pong.
    alien, pong = (739.9 - 227.8) / (7_127.7 - 227.8), (-19.3 + 20.7) / (14.6 + 20.7)
    assert f"van Hasselt et al. | 2 | - | {(alien + pong) / 2:.3f} | - |" in page
    assert "| DrQ(epsilon) | 0 | 0 | - | - | - | - |" in page
    assert "| Alien | 227.8 | 7,127.7 | 739.9 | 227.8 | 7,127.7 | missing | - |" in page
    assert "| Pong | -20.7 | 14.6 | -19.3 | 14.6 | 14.6 | - | - |" in page
    assert (tmp_path / "atari-100k-profile.png").exists()
    assert "4 of 36 runs have finished" in page


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["data-efficient Rainbow", "DrQ(epsilon)"])
def test_the_algorithms_of_the_atari_page_are_trained_and_score_unclipped_points(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    pytest.importorskip("ale_py", reason="the package ale-py is not installed")
    task = replace(benchmark.PAGES["atari-100k"].tasks["alien"], episodes=2)
    page = replace(benchmark.PAGES["atari-100k"], tasks={"alien": task})
    monkeypatch.setattr(learning_runs, "PAGES", {"atari-100k": page})
    monkeypatch.setattr(learning_table, "PAGES", {"atari-100k": page})
    runs = benchmark.runs_of("atari-100k", "alien", tmp_path, target_steps=1_650)
    run = next(run for run in runs if run.algorithm == algorithm)
    learning_runs.make_run(run)
    # Points of Alien are tens, so that the mean of two games is a multiple of five.
    assert run.result.greedy_return >= 10
    assert run.result.greedy_return % 5 == 0
    with task.envs(1)() as envs, task.envs(1, task.compositions[algorithm].wrappers)() as training:
        assert envs.observation_space == training.observation_space


def test_a_table_shows_thresholds_whether_they_are_reached_and_the_spread_over_seeds(
    benchmark: Any, tmp_path: Path
) -> None:
    for task, returns in (("cartpole", (480.0, 470.0, 490.0)), ("pendulum", (-200.0, -300.0, -240.0))):
        runs = benchmark.runs_of("policy-learning", task, tmp_path / "runs")
        chosen = [run for run in runs if run.algorithm in ("REINFORCE", "PPO", "DDPG", "SAC")]
        for run in chosen:
            write_result(benchmark, run, returns[run.seed - 1])
    benchmark.make_page(
        "policy-learning",
        (),
        benchmark.Arguments(docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept"),
    )
    page = tmp_path / "docs" / "policy-learning.md"
    endings = {name: row_of(name, page)[-2:] for name in ("REINFORCE", "PPO", "DDPG", "SAC", "A2C")}
    assert endings == {
        "REINFORCE": ["400", "yes"],
        "PPO": ["475", "yes"],
        "DDPG": ["-250", "yes"],
        "SAC": ["-160", "no"],
        "A2C": ["475", "-"],
    }
    runs = [run for run in benchmark.runs_of("mujoco", "halfcheetah", tmp_path / "runs") if run.algorithm == "SAC"]
    for run, greedy_return in zip(runs, (1.0, 2.0, 6.0), strict=True):
        write_result(benchmark, run, greedy_return)
    benchmark.make_page(
        "mujoco", (), benchmark.Arguments(docs=tmp_path / "docs", runs=tmp_path / "runs", kept=tmp_path / "kept")
    )
    assert row_of("SAC", tmp_path / "docs" / "mujoco.md")[4] == "3.0 ± 1.5"
