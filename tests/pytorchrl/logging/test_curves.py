"""Curves over steps, seconds and episodes: their points, and their smoothing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytorchrl.logging.curves import Curve, read_run
from storages import PersistenceError
from tests.support.run_folders import composition, recorded_run


def points(measured: Curve) -> list[tuple[float, float]]:
    return list(zip(measured.x.tolist(), measured.values.tolist(), strict=True))


def test_returns_of_training_and_evaluation_are_curves_over_steps(tmp_path: Path) -> None:
    records = [
        {"steps": 0, "test/return": 5.0},
        {"steps": 100, "train/return": 1.0, "train/episodes": 3},
        {"steps": 200, "losses/q": 0.5},
        {"steps": 200, "test/return": 7.0},
        {"steps": 300, "train/return": 2.0, "train/episodes": 1},
    ]
    read = read_run(recorded_run(tmp_path / "run", records, composition()))
    assert points(read.evaluations()) == [(0, 5), (200, 7)]
    assert points(read.training()) == [(100, 1), (300, 2)]
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
def test_training_returns_are_hidden_beside_evaluations_in_other_environments(
    test_envs: dict[str, Any] | None, evaluated: bool, shown: bool, tmp_path: Path
) -> None:
    records = [{"steps": 100.0, "train/return": 1.0}, {"steps": 100.0, "test/return": 5.0}][: 1 + evaluated]
    config = composition() | {"test_envs": test_envs and {"name": "VecEnv", "hyper_parameters": test_envs}}
    assert bool(len(read_run(recorded_run(tmp_path / "run", records, config)).training())) == shown


def test_a_record_without_a_finite_return_is_no_point(tmp_path: Path) -> None:
    records = [{"steps": 1, "train/return": math.nan}, {"steps": 2, "train/return": 4.0}, {"steps": 3, "losses/q": 0.1}]
    read = read_run(recorded_run(tmp_path / "run", records))
    assert points(read.training()) == [(2, 4)]
    assert not len(read.evaluations())


def test_the_points_of_a_curve_are_sorted_by_steps(tmp_path: Path) -> None:
    records = [{"steps": steps, "test/return": float(steps)} for steps in (300, 100, 200)]
    assert points(read_run(recorded_run(tmp_path / "run", records)).evaluations()) == [
        (100, 100),
        (200, 200),
        (300, 300),
    ]


def test_a_record_of_unknown_steps_does_not_disturb_the_order_of_the_others(tmp_path: Path) -> None:
    records = [{"steps": steps, "seconds": 1.0, "test/return": 2.0} for steps in (300, 400, math.nan, 100, 200)]
    read = read_run(recorded_run(tmp_path / "run", records))
    assert [at for at, _ in points(read.evaluations())] == [100, 200, 300, 400]
    assert math.isnan(read.records[-1]["steps"])
    assert len(read.evaluations("seconds")) == 5


def test_a_short_run_is_not_smoothed(tmp_path: Path) -> None:
    returns = np.random.default_rng(0).normal(size=19).tolist()
    records = [{"steps": float(step), "train/return": value} for step, value in enumerate(returns)]
    assert read_run(recorded_run(tmp_path / "run", records)).training().values.tolist() == returns


@pytest.mark.parametrize(("records", "around"), [(20, 1), (40, 2), (59, 2), (600, 25), (2000, 25)])
def test_smoothing_is_the_mean_over_the_episodes_around_a_record(tmp_path: Path, records: int, around: int) -> None:
    random = np.random.default_rng(records)
    returns, episodes = random.normal(size=records), random.integers(1, 9, size=records)
    folder = recorded_run(
        tmp_path / "run",
        [
            {"steps": 10.0 * number, "train/return": mean, "train/episodes": int(count)}
            for number, (mean, count) in enumerate(zip(returns, episodes, strict=True))
        ],
    )
    slow = []
    for number in range(records):
        near = slice(max(number - around, 0), number + around + 1)
        # Every episode of those records counts once, with the mean return of its record.
        slow.append(np.repeat(returns[near], episodes[near]).mean())
    smoothed = read_run(folder).training()
    np.testing.assert_allclose(smoothed.values, slow, rtol=1e-12)
    assert smoothed.x.tolist() == [10.0 * number for number in range(records)]


def test_episode_counts_stay_with_their_returns_in_incomplete_and_unordered_records(tmp_path: Path) -> None:
    records = [{"steps": float(step), "train/return": 0.0, "train/episodes": 1.0} for step in range(20)]
    records[10] |= {"train/return": 6.0, "train/episodes": 4.0}
    records.insert(3, {"steps": 2.5, "test/return": 0.0, "train/episodes": 100.0})
    expected = read_run(recorded_run(tmp_path / "in order", records)).training()
    read = read_run(recorded_run(tmp_path / "reversed", records[::-1])).training()
    assert points(read) == points(expected)
    assert read.values[9:12].tolist() == [4.0, 4.0, 4.0]
    assert read.values.sum() == 12.0


def test_smoothing_keeps_a_constant_return_constant_up_to_both_ends(tmp_path: Path) -> None:
    records = [{"steps": float(step), "train/return": 7.0, "train/episodes": step % 3 + 1} for step in range(100)]
    np.testing.assert_allclose(read_run(recorded_run(tmp_path / "run", records)).training().values, 7.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileNotFoundError, "is not a run folder: expected a folder with the metrics.jsonl"),
        ("", ValueError, r"metrics\.jsonl is empty: the run has not logged anything yet"),
        ('{"steps": 1\n{"steps": 2}\n', ValueError, r"metrics\.jsonl, line 1 is no JSON object"),
    ],
)
def test_a_folder_without_measurements_is_refused_with_the_reason(
    tmp_path: Path, content: str | None, error: type[Exception], message: str
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(error, match=message) as raised:
        read_run(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        '{"seed": ',
        "[]",
        '{"storage": 5}',
        '{"sources": [1]}',
        '{"algorithm": {"hyper_parameters": 1}}',
    ],
)
def test_a_damaged_configuration_is_refused_by_name(content: str, tmp_path: Path) -> None:
    folder = recorded_run(tmp_path / "run", [{"steps": 1, "test/return": 1.0}])
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        read_run(folder)


def test_a_run_without_metrics_is_reported_as_not_measured_yet(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"has not measured anything yet: it has no metrics\.jsonl"):
        read_run(tmp_path)


def test_a_symbolic_link_out_of_a_run_is_not_followed(tmp_path: Path) -> None:
    elsewhere = recorded_run(tmp_path / "elsewhere", [{"steps": 1, "test/return": 1.0}])
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.jsonl").symlink_to(elsewhere / "metrics.jsonl")
    with pytest.raises(PersistenceError, match="link"):
        read_run(folder)


RECORDS = [
    {"steps": 100, "seconds": 1.5, "train/return": 1.0, "train/episodes": 4},
    {"steps": 200, "seconds": 2.5, "test/return": 2.0},
    {"steps": 300, "seconds": 4.0, "train/return": 3.0, "train/episodes": 2, "losses/q": 0.5},
    {"steps": 400, "seconds": 5.0, "test/return": 4.0},
]


@pytest.mark.parametrize(
    ("x", "evaluated", "trained"),
    [("steps", [200, 400], [100, 300]), ("seconds", [2.5, 5.0], [1.5, 4.0]), ("episodes", [4, 6], [4, 6])],
)
def test_curves_can_be_over_steps_seconds_or_training_episodes(
    tmp_path: Path, x: Any, evaluated: list[float], trained: list[float]
) -> None:
    run = read_run(recorded_run(tmp_path / "run", RECORDS))
    assert run.evaluations(x).x.tolist() == evaluated
    assert run.training(x).x.tolist() == trained


def test_every_logged_metric_has_a_curve(tmp_path: Path) -> None:
    run = read_run(recorded_run(tmp_path / "run", RECORDS))
    assert points(run.curve("losses/q")) == [(300, 0.5)]
    assert points(run.smoothed("losses/q", "seconds")) == [(4.0, 0.5)]
    assert not len(run.curve("losses/other"))


def test_records_without_seconds_are_omitted_from_curves_over_seconds(tmp_path: Path) -> None:
    run = read_run(recorded_run(tmp_path / "run", [{"steps": 1, "test/return": 1.0}, *RECORDS]))
    assert points(run.evaluations("seconds")) == [(2.5, 2.0), (5.0, 4.0)]
