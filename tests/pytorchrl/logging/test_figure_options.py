"""Figures have the size, the labels, the names and the order that a user chooses, and give their axes and numbers."""

import csv
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

import pytorchrl as prl
from pytorchrl.comparison.pictures import _intervals as intervals_of
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


def test_curves_intervals_and_profiles_are_drawn_into_axes_of_ones_own(runs: Path, tmp_path: Path) -> None:
    figure = Figure(figsize=(6.5, 5), layout="constrained")
    grid = figure.subplots(2, 2)
    assert prl.curve_axes([runs], axes=grid[0, 0]) == {"CartPole-v1": grid[0, 0]}
    inside = prl.FigureOptions(legend_place="inside", title="Balance", font_size=7, order=["PPO"])
    comparison = prl.compare_runs([runs])
    assert prl.profile_axes(comparison, axes=grid[0, 1], options=inside) is grid[0, 1]
    assert prl.comparison_axes(comparison, axes=grid[1]) == list(grid[1])
    figure.savefig(tmp_path / "figure.pdf")
    assert not figure.legends
    assert all(axes.get_lines() and axes.get_xlabel() for axes in grid.flat)
    assert [line.get_label() for line in grid[0, 0].get_lines()] == ["DQN", "PPO"]
    assert (grid[0, 0].get_legend(), grid[0, 1].get_title()) == (None, "Balance")
    assert [text.get_text() for text in grid[0, 1].get_legend().get_texts()] == ["PPO", "DQN"]
    assert grid[0, 1].xaxis.label.get_size() == grid[0, 1].title.get_size() == 7
    assert grid[1, 0].get_ylim() == grid[1, 1].get_ylim()
    (alone,) = prl.comparison_axes(comparison, axes=Figure().subplots())
    assert [text.get_text() for text in alone.get_yticklabels()] == ["DQN", "PPO"]
    assert len(prl.comparison_axes(comparison)) == 2


@pytest.mark.parametrize("order", [[], ["PPO"]])
def test_a_group_has_the_same_colour_in_curves_and_in_comparisons(runs: Path, order: list[str]) -> None:
    for algorithm in ("DQN", "IQN", "PPO"):
        for seed in (1, 2):
            evaluated_run(runs / "b" / f"{algorithm}-{seed}", POINTS, algorithm=algorithm, env="B-v0", seed=seed)
    options = prl.FigureOptions(order=order, counts=False)

    def colours(axes: Any) -> dict[str, str]:
        return {line.get_label(): line.get_color() for line in axes.get_lines()}

    curves = colours(prl.curve_axes([runs / "b", runs], options=options)["B-v0"])
    assert set(curves) == {"DQN", "IQN", "PPO"}
    # IQN, which has no runs in CartPole, is not among the scores over both.
    comparison = prl.compare_runs([runs / "b", runs])
    profiles = colours(prl.profile_axes(comparison, options=options))
    assert profiles == {name: curves[name] for name in profiles}
    assert set(profiles) == {"DQN", "PPO"}
    means = prl.comparison_axes(comparison, options=options)[0]
    assert {line.get_color() for line in means.get_lines()} == set(profiles.values())


def test_colours_are_those_that_are_chosen(runs: Path) -> None:
    from matplotlib import cycler, rc_context

    options = prl.FigureOptions(names={"DQN": "ours"}, colors={"ours": "#123456"}, counts=False)

    def colours(axes: Any) -> dict[str, str]:
        return {line.get_label(): line.get_color() for line in axes.get_lines()}

    curves = colours(prl.curve_axes([runs], options=options)["CartPole-v1"])
    assert curves["ours"] == "#123456"
    assert curves["PPO"] != "#123456"
    assert colours(prl.profile_axes(prl.compare_runs([runs]), options=options)) == curves
    with rc_context({"axes.prop_cycle": cycler(color=["red", "#00ff00"])}):
        cycled = colours(prl.curve_axes([runs], options=options)["CartPole-v1"])
    assert cycled == {"ours": "#123456", "PPO": "#00ff00"}


def test_what_is_measured_in_training_is_averaged_as_chosen_and_own_metrics_are_not(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=40)
    names = ("losses/loss", "mine/action", "train/return")
    for seed in (1, 2):
        measured = [{"steps": float(step), **dict.fromkeys(names, value)} for step, value in enumerate(values)]
        recorded_run(tmp_path / f"runs/{seed}", measured, composition(seed=seed))

    def drawn(metric: str | None, smooth: float | None = None) -> tuple[list[float], str]:
        axes = prl.curve_axes([tmp_path / "runs"], metric=metric, options=prl.FigureOptions(smooth=smooth))
        (line,) = axes["CartPole-v1"].get_lines()
        return line.get_ydata().tolist(), line.get_label()

    raw = pytest.approx(values)
    assert drawn("mine/action") == (raw, "during training")
    assert drawn("losses/loss", 0) == (raw, "during training")
    assert drawn(None, 0) == (raw, "training (exploring)")
    smoothed, label = drawn("losses/loss")
    assert label == "during training, smoothed"
    assert np.std(smoothed) < np.std(values) / 2**0.5
    assert drawn("mine/action", 0.1) == (smoothed, label)
    assert drawn(None)[0] == smoothed


def test_axes_of_ones_own_are_needed_for_each_environment(runs: Path, tmp_path: Path) -> None:
    evaluated_run(runs / "other", POINTS, algorithm="DQN", env="Acrobot-v1")
    grid = Figure().subplots(1, 2)
    with pytest.raises(ValueError, match=r"axes: the runs are in 2 environments; give axes for each, "):
        prl.curve_axes([runs], axes=grid[0])
    with pytest.raises(ValueError, match="axes: there are none for 'Acrobot-v1'; the runs are in"):
        prl.curve_axes([runs], axes={"CartPole-v1": grid[0]})
    axes = prl.curve_axes([runs], axes={"CartPole-v1": grid[0], "Acrobot-v1": grid[1]})
    assert [one.get_title() for one in axes.values()] == ["CartPole-v1", "Acrobot-v1"]
    with pytest.raises(TypeError, match=r"axes must be matplotlib's, such as one of plt.subplots\(1, 2\)\[1\], got 3"):
        prl.curve_axes([runs], axes=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size is that of the figure of the axes"):
        prl.profile_axes(prl.compare_runs([runs]), axes=grid[0], options=prl.FigureOptions(size=(3, 2)))
    with pytest.raises(ValueError, match="axes: this comparison is drawn into one or two, got 3"):
        prl.comparison_axes(prl.compare_runs([runs / "DQN-1", runs / "PPO-1"]), axes=[*grid, grid[0]])


def test_unknown_arguments_of_figures_are_answered_with_what_is_here() -> None:
    with pytest.raises(TypeError, match=r"curve_axes: unknown argument 'ax'; here it is axes\. There are paths, axes"):
        prl.curve_axes(["runs"], ax=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'ax'; here it is prl\.curve_axes\(runs, axes=axes\)\. There are paths"):
        prl.plot_runs(["runs"], "a.png", ax=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'figsize'; here it is options=prl\.FigureOptions\(size=\.\.\.\)"):
        prl.plot_runs(["runs"], "a.png", figsize=(3, 2))  # type: ignore[call-arg]


def test_size_labels_names_and_order_are_those_given(runs: Path, tmp_path: Path) -> None:
    options = prl.FigureOptions(
        size=(3.5, 2.8), title="Balance", x_label="frames", y_label="score", names={"DQN": "ours"}, order=["PPO"]
    )
    (axes,) = prl.curve_axes([runs], options=options).values()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("Balance", "frames", "score")
    assert legend(axes) == ["PPO", "ours"]
    first, second = (line.get_ydata()[0] for line in axes.get_lines())
    assert first > second, "the first of the legend is drawn first"
    picture = plot_runs([runs], tmp_path / "small.png", options=options)
    assert matplotlib.image.imread(picture).shape[:2] == (420, 525)


def test_the_resolution_of_a_picture_can_be_chosen(runs: Path, tmp_path: Path) -> None:
    def pixels(dpi: float | None) -> list[tuple[int, ...]]:
        options, comparison = prl.FigureOptions(size=(4, 3), dpi=dpi), prl.compare_runs([runs])
        pictures = (
            plot_runs([runs], tmp_path / "curves.png", options=options),
            prl.draw_comparison(comparison, tmp_path / "intervals.png", options),
            prl.draw_profile(comparison, tmp_path / "profile.png", options),
        )
        return [matplotlib.image.imread(picture).shape[:2] for picture in pictures]

    assert pixels(50) == [(150, 200)] * 3
    with mpl.rc_context({"savefig.dpi": 100}):
        assert pixels(None) == [(300, 400)] * 3
        assert pixels(50) == [(150, 200)] * 3


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


@pytest.fixture
def four_groups(tmp_path: Path) -> Path:
    """Three seeds of each of four groups with long names, with evaluations and training."""
    for storage in ("PERBuffer", "NStepReplayBuffer"):
        for n_step in (1, 3):
            for seed in (1, 2, 3):
                records = [
                    {"steps": step, f"{kind}/return": step / 10 * n_step + seed}
                    for step in range(0, 1000, 100)
                    for kind in ("test", "train")
                ]
                config = composition(seed=seed, storage=storage, buffer={"n_step": n_step})
                recorded_run(tmp_path / "four" / f"{storage}-{n_step}-{seed}", records, config)
    return tmp_path / "four"


def only_axes(runs: Path, **options: Any) -> Any:
    (axes,) = prl.curve_axes([runs], options=prl.FigureOptions(**options)).values()
    axes.figure.canvas.draw()
    return axes


def extent(artist: Any) -> Any:
    return artist.get_window_extent(artist.get_figure().canvas.get_renderer())


@pytest.mark.parametrize("size", [(3.3, 2.4), (7.0, 3.0)])
def test_data_of_four_groups_have_half_the_height_and_no_text_is_cut(
    four_groups: Path, size: tuple[float, float]
) -> None:
    axes = only_axes(four_groups, size=size, title="")
    figure = axes.figure
    assert extent(axes).height > 0.5 * figure.bbox.height
    assert len({round(extent(text).x0) for text in figure.legends[0].get_texts()}) > 1, "several columns"
    for artist in (axes.yaxis.label, axes.xaxis.label, *figure.legends[0].get_texts(), figure.legends[0].get_title()):
        box = extent(artist)
        assert (box.x0 >= 0, box.y0 >= 0) == (True, True), artist
        assert (box.x1 <= figure.bbox.x1, box.y1 <= figure.bbox.y1) == (True, True), artist


def test_lines_markers_and_texts_are_smaller_in_a_narrow_figure(four_groups: Path) -> None:
    wide, narrow = only_axes(four_groups), only_axes(four_groups, size=(3.3, 2.4))
    for line, thin in zip(wide.get_lines(), narrow.get_lines(), strict=True):
        assert thin.get_linewidth() == pytest.approx(0.65 * line.get_linewidth())
        assert thin.get_markersize() == pytest.approx(0.65 * line.get_markersize())
    assert (wide.yaxis.label.get_fontsize(), narrow.yaxis.label.get_fontsize()) == (10, 7.5)
    assert narrow.get_yticklabels()[0].get_fontsize() == 7.5
    assert legend(narrow)[3:] == ["PERBuffer, n_step=3", "evaluation", "training"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["PPO, lr=0.01", "PPO, lr=0.1"], ["lr=0.01", "lr=0.1"]),
        (["DQN + PERBuffer, n_step=1", "DQN + ReplayBuffer"], ["PERBuffer, n_step=1", "ReplayBuffer"]),
        (["PPO, lr=0.01", "SAC, lr=0.1"], None),
        (["PPO, lr=0.01", "PPO"], None),
    ],
)
def test_names_in_a_column_leave_out_the_algorithm_of_all(
    runs: Path, names: list[str], shown: list[str] | None
) -> None:
    by_name = {name: [runs / f"{algorithm}-1"] for name, algorithm in zip(names, ("DQN", "PPO"), strict=True)}
    (axes,) = prl.curve_axes(by_name, options=prl.FigureOptions(size=(3.3, 2.4))).values()
    assert legend(axes) == (shown or names)


def test_all_texts_have_the_size_that_is_chosen(four_groups: Path) -> None:
    axes = only_axes(four_groups, size=(3.3, 2.4), font_size=6.5)
    box = axes.figure.legends[0]
    texts = (axes.title, axes.xaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels(), *box.get_texts())
    assert {text.get_fontsize() for text in (*texts, box.get_title())} == {6.5}


def test_parameters_of_matplotlib_that_were_changed_are_used(four_groups: Path) -> None:
    changed = {
        "font.size": 9,
        "lines.linewidth": 0.6,
        "lines.markersize": 2.2,
        "xtick.labelsize": 5,
        "legend.fontsize": 4,
    }
    with mpl.rc_context(changed):  # type: ignore[arg-type]
        axes = only_axes(four_groups, size=(3.3, 2.4))
    assert axes.yaxis.label.get_fontsize() == 9
    assert axes.get_xticklabels()[0].get_fontsize() == 5
    assert {text.get_fontsize() for text in axes.figure.legends[0].get_texts()} == {4}
    assert {round(line.get_linewidth(), 6) for line in axes.get_lines()} == {0.6, 0.4}
    assert {line.get_markersize() for line in axes.get_lines()} == {2.2}


def test_note_training_and_counts_can_be_left_out(four_groups: Path) -> None:
    assert note(only_axes(four_groups)) == "interquartile mean of 3 runs, with its 95% bootstrap interval"
    assert (
        note(only_axes(four_groups, counts=False)) == "interquartile mean of the runs, with its 95% bootstrap interval"
    )
    assert note(only_axes(four_groups, note=False)) == ""
    axes = only_axes(four_groups, training=False)
    assert len(axes.get_lines()) == 4
    assert len(legend(axes)) == 4
    assert note(axes).startswith("evaluation (greedy): ")
    evaluated_run(four_groups / "more", POINTS, storage="PERBuffer", buffer={"n_step": 1}, seed=9)
    assert "DQN + PERBuffer, n_step=1 (4 runs)" in legend(only_axes(four_groups))
    assert "DQN + PERBuffer, n_step=1" in legend(only_axes(four_groups, counts=False))


def note(axes: Any) -> str:
    return str(axes.figure.legends[0].get_title().get_text())


def test_the_csv_file_has_no_training_where_it_is_not_drawn(four_groups: Path, tmp_path: Path) -> None:
    options = prl.FigureOptions(training=False)
    found = records(plot_runs([four_groups], tmp_path / "curves.csv", options=options))
    assert {row["kind"] for row in found} == {"evaluation"}


def test_columns_and_place_of_the_legend_can_be_chosen(four_groups: Path) -> None:
    box = only_axes(four_groups, legend_columns=1).figure.legends[0]
    assert len({round(extent(text).x0) for text in box.get_texts()}) == 1
    above, right = (only_axes(four_groups, size=(7, 3), legend_place=place) for place in ("above", "right"))
    assert extent(above.figure.legends[0]).y0 >= extent(above).y1
    assert extent(right.figure.legends[0]).x0 >= extent(right).x1
    inside = only_axes(four_groups, legend_place="inside")
    assert not inside.figure.legends
    assert len(inside.get_legend().get_texts()) == 6
    assert not only_axes(four_groups, legend_place="none").figure.legends


def test_lines_of_axes_have_the_labels_of_the_legend(four_groups: Path) -> None:
    axes = only_axes(four_groups, legend_place="none")
    expected = [f"DQN + {storage}, n_step={n}" for storage in ("NStepReplayBuffer", "PERBuffer") for n in (1, 3)]
    assert sorted(text.get_text() for text in axes.legend().get_texts()) == expected
    axes = only_axes(four_groups / "PERBuffer-1-1", legend_place="none")
    labels = [text.get_text() for text in axes.legend().get_texts()]
    assert labels == ["training (exploring), smoothed", "evaluation (greedy)"]


def test_a_single_kind_of_curve_is_not_in_the_legend_of_several_groups(four_groups: Path) -> None:
    (axes,) = prl.curve_axes([four_groups], metric="test/return").values()
    assert len(legend(axes)) == 4
    assert note(axes) == "evaluation (greedy): interquartile mean of 3 runs, with its 95% bootstrap interval"


def test_curves_are_drawn_of_lists_by_names_of_ones_own(runs: Path, tmp_path: Path) -> None:
    by_name = {"mine": [runs / "PPO-1", runs / "PPO-2"], "theirs": [runs / "DQN-1"]}
    (axes,) = prl.curve_axes(by_name).values()
    assert legend(axes) == ["mine (2 runs)", "theirs"]
    found = records(plot_runs(by_name, tmp_path / "curves.csv"))
    assert list(dict.fromkeys(row["group"] for row in found)) == ["mine", "theirs"]
    with pytest.raises(ValueError, match="there is no group of runs"):
        prl.curve_axes({})


@pytest.mark.parametrize("size", [(3.3, 2.4), (7.0, 3.0)])
def test_no_label_of_a_comparison_is_cut(four_groups: Path, size: tuple[float, float]) -> None:
    options = prl.FigureOptions(size=size)
    with options.applied():
        figure: Any = intervals_of(prl.compare_runs([four_groups]), options)
    figure.canvas.draw()
    left, right = figure.axes
    names = left.get_yticklabels()
    for text in (*names, left.xaxis.label, right.xaxis.label):
        box = extent(text)
        assert (box.x0 >= 0, box.x1 <= figure.bbox.x1, box.y0 >= 0) == (True, True, True), text
    assert extent(left.xaxis.label).x1 <= extent(right.xaxis.label).x0
    boxes = sorted((extent(text) for text in names), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in pairwise(boxes)), "names do not overlap"


def test_an_empty_label_leaves_it_out(runs: Path) -> None:
    (axes,) = prl.curve_axes([runs], options=prl.FigureOptions(title="", x_label="", y_label="")).values()
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("", "", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 2)}, r"size must be a width and a height in inches, above 0, got \(0, 2\)"),
        ({"font_size": 0}, "font_size must be a number of points, above 0, got 0"),
        ({"dpi": 0}, "dpi must be a number of pixels per inch, above 0, got 0"),
        ({"legend_columns": 0}, "legend_columns must be at least 1, got 0"),
        ({"legend_place": "left"}, "legend_place must be one of below, above, right, inside, none, got 'left'"),
        ({"order": "PPO"}, r"order must be a list of names, got the text 'PPO'; write \['PPO'\]"),
        ({"order": ["A2C"]}, "order: there is no group 'A2C'; choose from: DQN; PPO"),
        ({"names": {"A2C": "ours"}}, "names: there is no group 'A2C'; choose from: DQN; PPO"),
        ({"names": {"DQN": "one", "PPO": "one"}}, "names must differ, got 'one', 'one'"),
        ({"colors": {"A2C": "red"}}, "colors: there is no group 'A2C'; choose from: DQN; PPO"),
        ({"colors": {"PPO": "bluish"}}, "colors: 'bluish' of 'PPO' is no colour of matplotlib, such as '#d62728'"),
        ({"smooth": 1.5}, "smooth must be a share of the curve, from 0 to 1, got 1.5"),
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
