"""Pictures of runs: their contents, and the replacement of earlier pictures."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pytorchrl.logging import MetricsFile, plot_runs
from pytorchrl.logging.curves import read_run
from pytorchrl.logging.groups import grouped
from pytorchrl.logging.pictures.curve_styles import Choice
from pytorchrl.logging.pictures.panels import draw_groups
from tests.support.run_folders import composition, recorded_run

Points: TypeAlias = Sequence[tuple[float, float]]


def run_folder(
    folder: Path, *, test: Points | None = None, train: Points | None = None, seed: int = 0, **settings: Any
) -> Path:
    """Write a run folder as a learner does; without settings, its composition is unknown."""
    folder.mkdir(parents=True)
    file = MetricsFile(folder / "metrics.jsonl")
    for steps, value in train or []:
        file.write({"steps": steps, "train/return": value, "train/episodes": 1})
    for steps, value in test or []:
        file.write({"steps": steps, "test/return": value})
    if settings:
        config = {
            "algorithm": {"name": settings.pop("algorithm", "DQN"), "hyper_parameters": settings},
            "train_envs": {"hyper_parameters": {"env": "CartPole-v1"}},
            "seed": seed,
        }
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def drawn(*folders: Path, **choice: Any) -> Figure:
    return draw_groups(grouped(map(read_run, folders)), Choice(**choice))


def points(line: Line2D) -> Points:
    return [(float(steps), float(value)) for steps, value in np.asarray(line.get_xydata())]


def line_of(figure: Figure, number: int) -> Line2D:
    (axes,) = figure.axes
    return axes.get_lines()[number]


def legend(figure: Figure) -> list[str]:
    (box,) = figure.legends
    return [text.get_text().replace("\n", " ") for text in box.get_texts()]


def caption(figure: Figure) -> str:
    return figure.legends[0].get_title().get_text()


def color(line: Line2D) -> str:
    return to_hex(line.get_color())


def tick_labels(figure: Figure) -> tuple[list[str], list[str]]:
    figure.canvas.draw()
    axes: Axes = figure.axes[0]
    return [text.get_text() for text in axes.get_xticklabels()], [text.get_text() for text in axes.get_yticklabels()]


def test_the_picture_is_a_png_with_the_curves_in_it(tmp_path: Path) -> None:
    falling = run_folder(tmp_path / "falling", test=[(0, 9.0), (100, 1.0)])
    rising = run_folder(tmp_path / "rising", test=[(0, 1.0), (100, 9.0)])
    output = tmp_path / "pictures" / "new" / "curve.PNG"
    assert plot_runs([falling], output) == output
    assert output.read_bytes().startswith(b"\x89PNG\r\n")
    picture = matplotlib.image.imread(output, format="png")
    assert picture.shape[0] >= 600
    assert picture.shape[1] >= 1000
    plot_runs([rising], output)
    assert (matplotlib.image.imread(output, format="png") != picture).any(axis=2).sum() > 1000
    assert list(output.parent.iterdir()) == [output]


def test_axes_are_labelled_and_the_title_names_algorithm_and_environment(tmp_path: Path) -> None:
    figure = drawn(run_folder(tmp_path / "run", test=[(0, 1.0), (1_000_000, 25_000.0)], algorithm="SAC"))
    (axes,) = figure.axes
    assert axes.get_title() == "SAC on CartPole-v1"
    assert axes.get_xlabel() == "environment steps"
    assert axes.get_ylabel() == "return per episode"
    steps, returns = tick_labels(figure)
    assert {"0", "1M"} <= set(steps)
    assert {"0", "20k"} <= set(returns)


def test_tick_labels_of_returns_of_a_few_thousand_are_not_abbreviated(tmp_path: Path) -> None:
    _, returns = tick_labels(drawn(run_folder(tmp_path / "run", test=[(0, -2000.0), (10_000, 0.0)])))
    assert {"-2,000", "-1,000", "0"} <= {label.replace("\N{MINUS SIGN}", "-") for label in returns}


def test_evaluation_and_training_curves_have_different_line_styles(tmp_path: Path) -> None:
    test, train = [(0.0, 1.0), (50.0, 4.0), (100.0, 9.0)], [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(run_folder(tmp_path / "run", test=test, train=train))
    assert legend(figure) == ["evaluation (greedy)", "training (exploring), smoothed"]
    training, evaluation = line_of(figure, 0), line_of(figure, 1)
    assert points(evaluation) == test
    assert points(training) == train
    assert (evaluation.get_linestyle(), training.get_linestyle()) == ("-", "--")
    assert evaluation.get_marker() == "o"
    assert evaluation.get_linewidth() > training.get_linewidth()
    assert evaluation.get_zorder() > training.get_zorder()
    assert color(evaluation) == color(training)
    assert [line.get_linestyle() for line in figure.legends[0].get_lines()] == ["-", "--"]
    assert figure.axes[0].get_xlim()[0] == 0


def test_a_run_without_evaluations_is_drawn_by_its_training_returns(tmp_path: Path) -> None:
    train = [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(run_folder(tmp_path / "run", train=train))
    assert legend(figure) == ["training (exploring), smoothed"]
    assert points(line_of(figure, 0)) == train
    assert line_of(figure, 0).get_linestyle() == "-"


@pytest.mark.parametrize("kind", ["test", "train"])
def test_a_single_point_is_drawn_with_a_marker(tmp_path: Path, kind: str) -> None:
    assert line_of(drawn(run_folder(tmp_path / "run", **{kind: [(10, 2.0)]})), 0).get_marker() == "o"  # type: ignore[arg-type]


def test_training_of_a_single_point_is_not_drawn_beside_evaluations(tmp_path: Path) -> None:
    figure = drawn(run_folder(tmp_path / "run", test=[(0, 1.0), (9, 3.0)], train=[(5, 2.0)]))
    assert [points(line) for line in figure.axes[0].get_lines()] == [[(0, 1), (9, 3)]]
    assert legend(figure) == ["evaluation (greedy)"]


def test_many_evaluations_are_a_line_without_markers(tmp_path: Path) -> None:
    test = [(float(steps), 1.0) for steps in range(500)]
    assert line_of(drawn(run_folder(tmp_path / "run", test=test)), 0).get_marker() in ("", "None")


def test_seeds_of_a_composition_are_drawn_as_one_line_with_its_interval(tmp_path: Path) -> None:
    values = {1: [(0, 1.0), (100, 2.0)], 2: [(0, 3.0), (100, 8.0), (200, 50.0)]}
    folders = [run_folder(tmp_path / str(seed), test=test, seed=seed, lr=0.1) for seed, test in values.items()]
    figure = drawn(*folders)
    (axes,) = figure.axes
    assert legend(figure) == ["evaluation (greedy)"]
    assert caption(figure) == "interquartile mean of 2 runs, with its 95% bootstrap interval"
    assert points(line_of(figure, 0)) == [(0, 2), (100, 5)]
    (band,) = axes.collections
    corners = {(float(steps), float(value)) for steps, value in np.asarray(band.get_paths()[0].vertices)}
    # The interval of two runs spans from one to the other.
    assert corners == {(0.0, 1.0), (0.0, 3.0), (100.0, 2.0), (100.0, 8.0)}
    assert axes.get_title() == "DQN on CartPole-v1"


@pytest.mark.parametrize(("statistic", "value"), [("iqm", 4.0), ("mean", 4.0), ("median", 3.0)])
def test_another_statistic_can_be_drawn(tmp_path: Path, statistic: str, value: float) -> None:
    folders = [run_folder(tmp_path / str(n), test=[(0, n), (9, n)], seed=n, lr=0.1) for n in (1, 3, 8)]
    figure = drawn(*folders, statistic=statistic)
    assert points(line_of(figure, 0)) == [(0, value), (9, value)]
    assert caption(figure).startswith({"iqm": "interquartile mean"}.get(statistic, statistic))


def test_seeds_without_a_common_range_are_separate_lines_of_one_color(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "1", test=[(0, 1.0), (10, 2.0)], seed=1, lr=0.1)
    second = run_folder(tmp_path / "2", test=[(20, 3.0), (30, 4.0)], seed=2, lr=0.1)
    figure = drawn(first, second)
    one, two = line_of(figure, 0), line_of(figure, 1)
    assert points(one) == [(0, 1), (10, 2)]
    assert points(two) == [(20, 3), (30, 4)]
    assert color(one) == color(two)
    assert len(legend(figure)) == 1


def test_different_compositions_in_one_picture_have_different_colors_and_names(tmp_path: Path) -> None:
    train = [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(
        run_folder(tmp_path / "a", test=[(0, 1.0), (10, 2.0)], train=train, algorithm="DQN"),
        run_folder(tmp_path / "b", test=[(0, 3.0), (10, 4.0)], train=train, algorithm="SAC"),
        run_folder(tmp_path / "c", train=train, algorithm="PPO"),
    )
    assert legend(figure) == ["DQN", "SAC", "PPO", "evaluation (greedy)", "training (exploring), smoothed"]
    lines = figure.axes[0].get_lines()
    assert [points(line) for line in lines] == [train, [(0, 1), (10, 2)], train, [(0, 3), (10, 4)], train]
    assert [line.get_linestyle() for line in lines] == ["--", "-", "--", "-", "--"]
    dqn, sac, ppo = (to_hex(line.get_color()) for line in figure.legends[0].get_lines()[:3])
    assert list(map(color, lines)) == [dqn, dqn, sac, sac, ppo]
    assert len({dqn, sac, ppo}) == 3
    assert figure.axes[0].get_title() == "DQN, SAC, PPO on CartPole-v1"


def test_the_legend_shows_the_number_of_runs_of_each_group(tmp_path: Path) -> None:
    folders = [
        run_folder(tmp_path / f"{lr} {seed}", test=[(0, lr), (10, seed)], seed=seed, lr=lr)
        for lr in (0.1, 0.2)
        for seed in (1, 2)
    ]
    figure = drawn(*folders, run_folder(tmp_path / "alone", test=[(0, 1.0)], lr=0.3))
    assert legend(figure)[:3] == ["DQN, lr=0.1 (2 runs)", "DQN, lr=0.2 (2 runs)", "DQN, lr=0.3"]


def test_an_equal_number_of_runs_is_in_the_note_instead_of_the_legend(tmp_path: Path) -> None:
    test, train = [(0, 1.0), (10, 2.0)], [(0, 3.0), (10, 4.0)]
    folders = [
        run_folder(tmp_path / f"{lr} {seed}", test=test, train=train, seed=seed, lr=lr)
        for lr in (0.1, 0.2)
        for seed in (1, 2)
    ]
    figure = drawn(*folders)
    assert legend(figure)[:2] == ["DQN, lr=0.1", "DQN, lr=0.2"]
    assert caption(figure) == "interquartile mean of 2 runs, with its 95% bootstrap interval"


def test_many_runs_differ_in_color_or_marker_and_their_legend_is_beside_the_axes(tmp_path: Path) -> None:
    test, train = [(0, 1.0), (10, 2.0)], [(0, 3.0)]
    folders = [run_folder(tmp_path / str(lr), test=test, train=train, lr=lr) for lr in range(30)]
    figure = drawn(*folders)
    (axes,) = figure.axes
    assert legend(figure) == [*(f"DQN, lr={lr}" for lr in range(30))]
    looks = [(color(line), str(line.get_marker())) for line in axes.get_lines()]
    # Only the evaluations are drawn: sixty lines would be unreadable.
    assert len(set(looks)) == len(looks) == 30
    figure.canvas.draw()
    (box,) = figure.legends
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    extent = box.get_window_extent(renderer)
    assert extent.x0 >= axes.get_window_extent(renderer).x1
    assert extent.x1 <= figure.bbox.x1
    assert extent.y0 >= 0


@pytest.mark.parametrize("runs", [1, 3])
def test_the_legend_of_few_runs_is_below_the_axes_and_within_the_picture(tmp_path: Path, runs: int) -> None:
    long = {"name": "LinearSchedule", "hyper_parameters": {"initial": 0.000123456, "final": 0.000123456}}
    folders = [run_folder(tmp_path / str(n), test=[(0, 1.0)], lr=n, lr_pi=long | {"n": n}) for n in range(runs)]
    figure = drawn(*folders)
    figure.canvas.draw()
    (box,) = figure.legends
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    extent, axes = box.get_window_extent(renderer), figure.axes[0].get_tightbbox(renderer)
    assert axes is not None
    assert extent.y1 <= axes.y0
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1
    assert extent.y0 >= 0


def test_each_environment_has_a_panel_and_algorithms_keep_their_colors(tmp_path: Path) -> None:
    folders = [
        recorded_run(
            tmp_path / f"{algorithm} {env}", [{"steps": 5, "test/return": 1.0}], composition(algorithm, env=env)
        )
        for env in ("A-v0", "B-v0", "C-v0")
        for algorithm in ("DQN", "PPO")
        if (algorithm, env) != ("DQN", "B-v0")
    ]
    figure = drawn(*folders)
    assert [axes.get_title() for axes in figure.axes] == ["A-v0", "B-v0", "C-v0"]
    assert legend(figure) == ["DQN", "PPO"]
    assert caption(figure) == "evaluation (greedy)"
    one, two, three = ([color(line) for line in axes.get_lines()] for axes in figure.axes)
    assert one == three
    assert two == one[1:]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "environment steps", "environment steps"]


@pytest.mark.parametrize(
    ("x", "seconds", "label", "last"),
    [
        ("steps", 100, "environment steps", 1000),
        ("episodes", 100, "training episodes", 7),
        ("seconds", 100, "seconds of training", 100),
        ("seconds", 600, "minutes of training", 10),
        ("seconds", 36_000, "hours of training", 10),
    ],
)
def test_curves_are_drawn_over_steps_episodes_or_time(
    tmp_path: Path, x: str, seconds: float, label: str, last: float
) -> None:
    records = [
        {"steps": 0, "seconds": 0.0, "test/return": 0.0},
        {"steps": 900, "seconds": seconds * 0.9, "train/return": 0.5, "train/episodes": 7},
        {"steps": 1000, "seconds": seconds, "test/return": 1.0},
    ]
    figure = drawn(recorded_run(tmp_path / "run", records, composition()), x=x)
    assert figure.axes[0].get_xlabel() == label
    assert points(line_of(figure, 0)) == [(0, 0), (last, 1)]


def test_every_logged_metric_can_be_drawn(tmp_path: Path) -> None:
    records = [{"steps": step, "losses/q": float(step), "test/success": 0.5} for step in range(5)]
    folder = recorded_run(tmp_path / "run", records, composition())
    figure = drawn(folder, metric="losses/q")
    assert figure.axes[0].get_ylabel() == "losses/q"
    assert legend(figure) == ["during training, smoothed"]
    assert points(line_of(figure, 0)) == [(step, step) for step in range(5)]
    assert legend(drawn(folder, metric="test/success")) == ["evaluation (greedy)"]


def test_curves_over_unlogged_seconds_and_unknown_choices_are_refused(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", test=[(0, 1.0)])
    with pytest.raises(ValueError, match="did not log seconds beside what is drawn; choose another x"):
        drawn(folder, x="seconds")
    for wrong in ({"x": "minutes"}, {"statistic": "maximum"}):
        with pytest.raises(ValueError, match=r"must be one of .*, got '"):
            plot_runs([folder], tmp_path / "curve.png", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("suffix", "begin"), [(".svg", b"<?xml"), (".pdf", b"%PDF-")])
def test_figures_for_papers_are_reproducible(tmp_path: Path, suffix: str, begin: bytes) -> None:
    folder = run_folder(tmp_path / "run", test=[(0, 1.0), (5, 2.0)])
    first = plot_runs([folder], tmp_path / f"curve{suffix}").read_bytes()
    assert first.startswith(begin)
    assert plot_runs([folder], tmp_path / f"curve{suffix}").read_bytes() == first
    assert b"/Type3" not in first, "journals refuse fonts of type 3"


@pytest.mark.parametrize("name", ["curve.jpg", "curve", "png"])
def test_a_picture_of_another_file_type_is_refused(tmp_path: Path, name: str) -> None:
    folder = run_folder(tmp_path / "run", test=[(0, 1.0)])
    with pytest.raises(ValueError, match=r"its name must end in \.png, \.svg, \.pdf or \.csv, got '.*" + name):
        plot_runs([folder], tmp_path / name)
    assert not (tmp_path / name).exists()


def test_an_unreadable_run_leaves_the_old_picture_unchanged(tmp_path: Path) -> None:
    good = run_folder(tmp_path / "good", test=[(0, 1.0)])
    without_metrics, without_returns = tmp_path / "other", run_folder(tmp_path / "young")
    without_metrics.mkdir()
    MetricsFile(without_returns / "metrics.jsonl").write({"steps": 10, "losses/q": 1.0})
    output = tmp_path / "curve.png"
    output.write_bytes(b"the old picture")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        plot_runs([good, tmp_path / "nowhere"], output)
    with pytest.raises(FileNotFoundError, match=r"there is no run with measurements in .*other"):
        plot_runs([without_metrics], output)
    with pytest.raises(ValueError, match="young has not measured a return yet"):
        plot_runs([good, without_returns], output)
    assert output.read_bytes() == b"the old picture"


def test_a_failed_drawing_leaves_the_old_picture_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, output = run_folder(tmp_path / "run", test=[(0, 1.0)]), tmp_path / "curve.png"
    output.write_bytes(b"the old picture")

    def disk_full(self: Figure, file: BinaryIO, **_: object) -> None:
        file.write(b"\x89PN")
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", disk_full)
    with pytest.raises(OSError, match="no space left"):
        plot_runs([folder], output)
    assert output.read_bytes() == b"the old picture"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "curve.png"}


def test_a_record_of_unknown_seconds_leaves_the_others_on_the_axis_of_time(tmp_path: Path) -> None:
    records = [{"steps": n, "seconds": 120.0 * n if n else math.nan, "test/return": 1.0} for n in range(6)]
    figure = drawn(recorded_run(tmp_path / "run", records), x="seconds")
    assert [at for at, _ in points(line_of(figure, 0))] == [2, 4, 6, 8, 10]
    assert figure.axes[0].get_xlabel() == "minutes of training"
