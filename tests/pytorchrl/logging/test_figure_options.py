"""Figures have the size, the labels, the names and the order that a user chooses, and give their axes and numbers."""

import csv
import math
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

import pytorchrl as prl
from pytorchrl.logging import plot_runs
from tests.support.run_folders import composition, evaluated_run, recorded_run

POINTS = [(0, 1.0), (50, 3.0), (100, 4.0)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for algorithm, better in (("DQN", 0.0), ("PPO", 10.0)):
        for seed in (1, 2):
            returns = [(steps, value + better + seed) for steps, value in POINTS]
            evaluated_run(tmp_path / "runs" / f"{algorithm}-{seed}", returns, algorithm=algorithm, seed=seed)
    return tmp_path / "runs"


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.figure.legends[0].get_texts()]


def test_axes_of_each_environment_are_returned_to_go_on_with(runs: Path, tmp_path: Path) -> None:
    evaluated_run(runs / "other", POINTS, algorithm="DQN", env="Acrobot-v1")
    axes = prl.curve_axes([runs])
    assert set(axes) == {"CartPole-v1", "Acrobot-v1"}
    axes["CartPole-v1"].axhline(475, label="solved")
    axes["CartPole-v1"].figure.savefig(tmp_path / "mine.png")
    assert len(axes["CartPole-v1"].get_lines()) == 3
    assert axes["Acrobot-v1"].get_title() == "Acrobot-v1"


def test_size_labels_names_and_order_are_those_given(runs: Path, tmp_path: Path) -> None:
    options = prl.FigureOptions(
        size=(3.5, 2.8), title="Balance", x_label="frames", y_label="score", names={"DQN": "ours"}, order=["PPO"]
    )
    (axes,) = prl.curve_axes([runs], options=options).values()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Balance", "frames", "score")
    assert legend(axes) == ["PPO (2 runs)", "ours (2 runs)", "evaluation (greedy)"]
    first, second = (line.get_ydata()[0] for line in axes.get_lines())
    assert first > second, "the first of the legend is drawn first"
    picture = plot_runs([runs], tmp_path / "small.png", options=options)
    assert matplotlib.image.imread(picture).shape[:2] == (420, 525)


@pytest.mark.parametrize("size", [(3.3, 2.6), (7.0, 3.0)])
def test_the_legend_stays_within_a_figure_of_a_columns_width(runs: Path, size: tuple[float, float]) -> None:
    names = {"DQN": "a method with a rather long name", "PPO": "another one of the same length"}
    (axes,) = prl.curve_axes([runs], options=prl.FigureOptions(size=size, names=names)).values()
    figure: Any = axes.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    extent = figure.legends[0].get_window_extent(renderer)
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1
    assert axes.get_window_extent(renderer).height > 0.25 * figure.bbox.height


def test_an_empty_label_leaves_it_out(runs: Path) -> None:
    (axes,) = prl.curve_axes([runs], options=prl.FigureOptions(title="", x_label="", y_label="")).values()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("", "", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 2)}, r"size must be a width and a height in inches, above 0, got \(0, 2\)"),
        ({"order": "PPO"}, r"order must be a list of names, got the text 'PPO'; write \['PPO'\]"),
        ({"order": ["A2C"]}, "order: there is no group 'A2C'; choose from: DQN; PPO"),
        ({"names": {"A2C": "ours"}}, "names: there is no group 'A2C'; choose from: DQN; PPO"),
        ({"names": {"DQN": "one", "PPO": "one"}}, "names must differ, got 'one', 'one'"),
        ({"names": {"DQN": "PPO"}}, "names: two groups would be named alike: PPO; PPO"),
    ],
)
def test_impossible_options_are_refused(runs: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.curve_axes([runs], options=prl.FigureOptions(**options))


def records(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_numbers_of_a_figure_are_written_to_a_csv_file(runs: Path, tmp_path: Path) -> None:
    found = records(plot_runs([runs], tmp_path / "new" / "curves.csv", options=prl.FigureOptions(order=["PPO"])))
    assert len(found) == 6
    assert found[0] == {
        "environment": "CartPole-v1",
        "group": "PPO",
        "kind": "evaluation",
        "runs": "2",
        "steps": "0.0",
        "value": "12.5",
        "low": "12.0",
        "high": "13.0",
    }
    assert [row["group"] for row in found[3:]] == ["DQN"] * 3
    found = records(plot_runs([runs / "DQN-1"], tmp_path / "one.csv", x="seconds"))
    assert [(row["seconds"], row["value"], row["low"]) for row in found] == [
        ("0.0", "2.0", ""),
        ("5.0", "4.0", ""),
        ("10.0", "5.0", ""),
    ]


def test_runs_without_a_common_range_follow_one_another_in_the_csv_file(tmp_path: Path) -> None:
    for seed, start in ((1, 0), (2, 100)):
        recorded_run(
            tmp_path / f"{seed}", [{"steps": start + n, "test/return": n} for n in (0, 1)], composition(seed=seed)
        )
    found = records(plot_runs([tmp_path], tmp_path / "curves.csv"))
    assert [(row["runs"], row["steps"]) for row in found] == [
        ("1", "0.0"),
        ("1", "1.0"),
        ("1", "100.0"),
        ("1", "101.0"),
    ]


def test_intervals_and_profiles_have_the_names_and_the_order_given(runs: Path, tmp_path: Path) -> None:
    comparison = prl.compare_runs([runs])
    options = prl.FigureOptions(size=(3.5, 2.5), names={"PPO": "ours"}, order=["ours"], title="Scores of methods")
    drawn = prl.draw_comparison(comparison, tmp_path / "intervals.svg", options).read_text()
    comments = re.findall(r"<!-- (.*?) -->", drawn)
    assert "Scores of methods" in comments
    assert comments.index("ours") < comments.index("DQN")
    profile = records(prl.draw_profile(comparison, tmp_path / "profile.csv", options))
    assert [row["group"] for row in profile[:: len(profile) // 2]] == ["ours", "DQN"]
    assert (float(profile[0]["share"]), float(profile[-1]["share"])) == (1.0, 0.0)
    assert all(math.isfinite(float(row["low"])) for row in profile)
    (dqn, ppo) = records(prl.draw_comparison(comparison, tmp_path / "intervals.csv"))
    assert (dqn["group"], float(ppo["iqm"])) == ("DQN", 15.5)
