"""Curves over steps: what is measured, how it is smoothed, which runs belong together and what they are called."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytorchrl.logging import MetricsFile
from pytorchrl.logging.curves import Curve, Run, grouped, labels, mean_and_spread, read_run, title, unit

NOTHING = Curve(np.empty(0), np.empty(0))


def composition(algorithm: str = "DQN", seed: int = 0, env: Any = "CartPole-v1", **more: Any) -> dict[str, Any]:
    """A run's config as far as curves look at it."""
    return {
        "algorithm": {"name": algorithm, "hyper_parameters": more.pop("settings", {})},
        "storage": {"name": more.pop("storage", "ReplayBuffer"), "hyper_parameters": more.pop("buffer", {})},
        "train_envs": {"name": "VecEnv", "hyper_parameters": {"env": env}},
        "seed": seed,
        "target_steps": 1000,
        "log_to": [],
        "log_every": 100,
    } | more


def run_folder(folder: Path, records: list[dict[str, float]], config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True)
    file = MetricsFile(folder / "metrics.jsonl")
    for record in records:
        file.write(record)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def run(config: dict[str, Any], folder: str = "run") -> Run:
    return Run(Path(folder), config, NOTHING, NOTHING)


def curve(*points: tuple[float, float]) -> Curve:
    steps, values = zip(*points, strict=True)
    return Curve(np.array(steps, np.float64), np.array(values, np.float64))


def points(measured: Curve) -> list[tuple[float, float]]:
    return list(zip(measured.steps.tolist(), measured.values.tolist(), strict=True))


def test_returns_of_training_and_evaluation_are_curves_over_steps(tmp_path: Path) -> None:
    records = [
        {"steps": 0, "test/return": 5.0},
        {"steps": 100, "train/return": 1.0, "train/episodes": 3},
        {"steps": 200, "losses/q": 0.5},
        {"steps": 200, "test/return": 7.0},
        {"steps": 300, "train/return": 2.0, "train/episodes": 1},
    ]
    read = read_run(run_folder(tmp_path / "run", records, composition()))
    assert points(read.test) == [(0, 5), (200, 7)]
    assert points(read.train) == [(100, 1), (300, 2)]
    assert read.config == composition()


@pytest.mark.parametrize(
    ("test_envs", "evaluated", "shown"),
    [
        (None, True, True),
        ({"env": "CartPole-v1", "num_envs": 10, "wrappers": []}, True, True),
        ({"env": "CartPole-v1", "wrappers": [["ScaleReward", {"factor": 0.1}]]}, True, False),
        ({"env": "CartPole-v1", "env_kwargs": {"sutton_barto_reward": True}}, True, False),
        ({"env": "CartPole-v0"}, True, False),
        ({"env": "CartPole-v0"}, False, True),
    ],
)
def test_training_episodes_are_no_curve_beside_evaluations_whose_returns_mean_something_else(
    test_envs: dict[str, Any] | None, evaluated: bool, shown: bool, tmp_path: Path
) -> None:
    records = [{"steps": 100.0, "train/return": 1.0}, {"steps": 100.0, "test/return": 5.0}][: 1 + evaluated]
    config = composition() | {"test_envs": test_envs and {"name": "VecEnv", "hyper_parameters": test_envs}}
    assert bool(len(read_run(run_folder(tmp_path / "run", records, config)).train)) == shown


def test_a_record_without_a_finite_return_is_no_point(tmp_path: Path) -> None:
    records = [{"steps": 1, "train/return": math.nan}, {"steps": 2, "train/return": 4.0}, {"steps": 3, "losses/q": 0.1}]
    read = read_run(run_folder(tmp_path / "run", records))
    assert points(read.train) == [(2, 4)]
    assert not len(read.test)


def test_steps_never_fall_along_a_curve(tmp_path: Path) -> None:
    records = [{"steps": steps, "test/return": float(steps)} for steps in (300, 100, 200)]
    assert points(read_run(run_folder(tmp_path / "run", records)).test) == [(100, 100), (200, 200), (300, 300)]


def test_a_short_run_is_not_smoothed(tmp_path: Path) -> None:
    returns = np.random.default_rng(0).normal(size=19).tolist()
    records = [{"steps": float(step), "train/return": value} for step, value in enumerate(returns)]
    assert read_run(run_folder(tmp_path / "run", records)).train.values.tolist() == returns


@pytest.mark.parametrize(("records", "around"), [(20, 1), (40, 2), (59, 2), (600, 25), (2000, 25)])
def test_smoothing_is_the_mean_over_the_episodes_around_a_record(tmp_path: Path, records: int, around: int) -> None:
    random = np.random.default_rng(records)
    returns, episodes = random.normal(size=records), random.integers(1, 9, size=records)
    folder = run_folder(
        tmp_path / "run",
        [
            {"steps": 10.0 * number, "train/return": mean, "train/episodes": int(count)}
            for number, (mean, count) in enumerate(zip(returns, episodes, strict=True))
        ],
    )
    slow = []
    for number in range(records):
        near = slice(max(number - around, 0), number + around + 1)
        # Every episode of those records once, each with the mean of its record.
        slow.append(np.repeat(returns[near], episodes[near]).mean())
    smoothed = read_run(folder).train
    np.testing.assert_allclose(smoothed.values, slow, rtol=1e-12)
    assert smoothed.steps.tolist() == [10.0 * number for number in range(records)]


def test_episodes_stay_with_their_returns_where_some_records_have_none_and_the_order_is_off(tmp_path: Path) -> None:
    records = [{"steps": float(step), "train/return": 0.0, "train/episodes": 1.0} for step in range(20)]
    records[10] |= {"train/return": 6.0, "train/episodes": 4.0}
    records.insert(3, {"steps": 2.5, "test/return": 0.0, "train/episodes": 100.0})
    expected = read_run(run_folder(tmp_path / "in order", records)).train
    read = read_run(run_folder(tmp_path / "reversed", records[::-1])).train
    assert points(read) == points(expected)
    assert read.values[9:12].tolist() == [4.0, 4.0, 4.0]
    assert read.values.sum() == 12.0


def test_a_constant_return_stays_constant_up_to_both_ends(tmp_path: Path) -> None:
    records = [{"steps": float(step), "train/return": 7.0, "train/episodes": step % 3 + 1} for step in range(100)]
    np.testing.assert_allclose(read_run(run_folder(tmp_path / "run", records)).train.values, 7.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileNotFoundError, "is not a run folder: expected a folder with the metrics.jsonl"),
        ("", ValueError, r"metrics\.jsonl is empty: the run has not logged anything yet"),
        ('{"steps": 1, "losses/q": 0.5}\n', ValueError, "has not measured a return yet"),
        ('{"steps": 1, "train/return": null}\n', ValueError, "has not measured a return yet"),
        ('{"steps": 1\n{"steps": 2}\n', ValueError, r"metrics\.jsonl, line 1 is no JSON object"),
    ],
)
def test_a_folder_without_returns_is_refused_with_the_reason(
    tmp_path: Path, content: str | None, error: type[Exception], message: str
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(error, match=message) as raised:
        read_run(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_a_folder_that_does_not_exist_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ['{"seed": ', "[]"])
def test_a_damaged_config_is_named(content: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", [{"steps": 1, "test/return": 1.0}])
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        read_run(folder)


def test_runs_that_differ_in_their_seed_and_where_they_log_belong_together() -> None:
    one, two = run(composition(seed=1), "1"), run(composition(seed=2, log_to=["wandb"], log_every=7), "2")
    other = run(composition(seed=1, settings={"gamma": 0.9}), "3")
    reordered = run(dict(reversed(composition(seed=4).items())), "4")
    assert grouped([one, other, two, reordered]) == [[one, two, reordered], [other]]


def test_runs_of_which_nothing_is_known_stay_apart() -> None:
    one, two = run({}, "1"), run({}, "2")
    assert grouped([one, two]) == [[one], [two]]
    assert grouped([run({"seed": 1}, "1"), run({"seed": 1}, "2")]) == [[run({"seed": 1}, "1")], [run({"seed": 1}, "2")]]


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([composition("DQN"), composition("SAC")], ["DQN", "SAC"]),
        (
            [composition(storage="ReplayBuffer"), composition(storage="PERBuffer")],
            ["DQN + ReplayBuffer", "DQN + PERBuffer"],
        ),
        (
            [composition(env="CartPole-v1"), composition(env="Acrobot-v1")],
            ["DQN on CartPole-v1", "DQN on Acrobot-v1"],
        ),
        ([composition(env={"callable": "toys.Counter"}), composition()], ["DQN on toys.Counter", "DQN on CartPole-v1"]),
        (
            [composition(buffer={"n_step": 1}), composition(buffer={"n_step": 3}), composition(buffer={"n_step": 5})],
            ["DQN, n_step=1", "DQN, n_step=3", "DQN, n_step=5"],
        ),
        (
            [composition(settings={"lr": 0.1, "gamma": 0.9}), composition(settings={"lr": 0.2})],
            ["DQN, lr=0.1, gamma=0.9", "DQN, lr=0.2, gamma=None"],
        ),
        (
            [composition("DQN", env="A-v0"), composition("DQN", env="B-v0"), composition("SAC", env="A-v0")],
            ["DQN on A-v0", "DQN on B-v0", "SAC on A-v0"],
        ),
        (
            [composition(settings={}), composition(settings={"a": 1, "b": 2, "c": 3, "d": 4})],
            ["folder 0", "folder 1"],
        ),
        ([composition(), {}], ["folder 0", "folder 1"]),
    ],
    ids=[
        "algorithm",
        "storage",
        "environment",
        "own environment",
        "setting",
        "settings",
        "both",
        "too many",
        "unknown",
    ],
)
def test_a_label_is_no_longer_than_what_tells_the_groups_apart(
    configs: list[dict[str, Any]], expected: list[str]
) -> None:
    groups = [[run(config, f"runs/folder {number}")] for number, config in enumerate(configs)]
    assert labels(groups) == expected


def test_seeds_do_not_enter_the_labels_of_the_groups_they_repeat() -> None:
    groups = [[run(composition(seed=seed, settings={"lr": lr})) for seed in (1, 2)] for lr in (0.1, 0.2)]
    groups[1].reverse()
    assert labels(groups) == ["DQN, lr=0.1", "DQN, lr=0.2"]


def test_folders_of_one_name_are_told_apart_by_their_paths() -> None:
    assert labels([[run({}, "a/run")], [run({}, "b/run")]]) == [str(Path("a/run")), str(Path("b/run"))]


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([composition(), composition(seed=3)], "DQN on CartPole-v1"),
        ([composition(), composition("SAC", env="Pendulum-v1")], "DQN, SAC on CartPole-v1, Pendulum-v1"),
        ([{}, {}], "folder 0, folder 1"),
    ],
)
def test_the_title_says_what_ran_where(configs: list[dict[str, Any]], expected: str) -> None:
    assert title([run(config, f"runs/folder {number}") for number, config in enumerate(configs)]) == expected


def test_mean_and_spread_of_runs_measured_at_the_same_steps() -> None:
    measured = mean_and_spread([curve((0, 1), (10, 4)), curve((0, 3), (10, 4)), curve((0, 5), (10, 10))])
    assert measured is not None
    mean, spread = measured
    assert points(mean) == [(0, 3), (10, 6)]
    np.testing.assert_allclose(spread, [2.0, math.sqrt(12)])  # of a sample: divided by n - 1


def test_the_mean_goes_no_further_than_every_run_was_measured() -> None:
    measured = mean_and_spread([curve((0, 0), (20, 20), (40, 40)), curve((10, 110), (30, 130), (50, 150))])
    assert measured is not None
    mean, spread = measured
    assert points(mean) == [(10, 60), (20, 70), (30, 80), (40, 90)]
    np.testing.assert_allclose(spread, math.sqrt(2) * 50)


def test_runs_measured_at_no_common_steps_have_no_mean() -> None:
    assert mean_and_spread([curve((0, 1), (10, 1)), curve((11, 1), (20, 1))]) is None
    touching = mean_and_spread([curve((0, 1), (10, 2)), curve((10, 4), (20, 1))])
    assert touching is not None
    assert points(touching[0]) == [(10, 3)]


def test_a_lone_run_is_its_own_mean_without_spread() -> None:
    alone = curve((0, 3), (10, 5))
    measured = mean_and_spread([alone])
    assert measured is not None
    assert points(measured[0]) == points(alone)
    assert measured[1].tolist() == [0, 0]


def test_steps_of_runs_without_environments_to_train_in_are_updates() -> None:
    envs = {"name": "VecEnv", "hyper_parameters": {"env": "Pendulum-v1"}}
    trained, offline = run(composition()), run(composition("BCQ") | {"train_envs": None, "test_envs": envs})
    assert unit([trained]) == unit([run({})]) == "environment steps"
    assert unit([offline, offline]) == "updates"
    assert unit([trained, offline]) == "environment steps, or updates"
    assert title([offline]) == "BCQ on Pendulum-v1"


def test_runs_that_differ_in_where_a_source_is_kept_belong_together(tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        source = {"name": "ReplayBuffer", "hyper_parameters": {"size": 9, "directory": f"expert-{number}"}}
        config = composition("GAIL", seed=number) | {"sources": {"expert": source}}
        runs.append(read_run(run_folder(tmp_path / str(number), [{"steps": 10, "test/return": 1.0}], config)))
    assert len(grouped(runs)) == 1
