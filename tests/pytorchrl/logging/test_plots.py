"""Pictures of runs: what stands in them, and what becomes of the picture that was there before."""

import json
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

from pytorchrl.logging import MetricsFile, plot_runs, plots
from pytorchrl.logging.curves import grouped, read_run, title

Points: TypeAlias = Sequence[tuple[float, float]]


def run_folder(
    folder: Path, *, test: Points | None = None, train: Points | None = None, seed: int = 0, **settings: Any
) -> Path:
    """A run folder as a learner leaves it; without settings one whose composition is not known."""
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


def drawn(*folders: Path) -> Figure:
    runs = [read_run(folder) for folder in folders]
    return plots._figure(grouped(runs), title(runs))


def points(line: Line2D) -> Points:
    return [(float(steps), float(value)) for steps, value in np.asarray(line.get_xydata())]


def lines(figure: Figure) -> dict[str, Line2D]:
    """The lines that the legend names."""
    (axes,) = figure.axes
    return {str(line.get_label()): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}


def legend(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    inside = axes.get_legend()
    boxes = [*figure.legends, *([inside] if inside else [])]
    return [text.get_text() for box in boxes for text in box.get_texts()]


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


def test_axes_are_labelled_and_the_title_says_what_ran(tmp_path: Path) -> None:
    figure = drawn(run_folder(tmp_path / "run", test=[(0, 1.0), (1_000_000, 25_000.0)], algorithm="SAC"))
    (axes,) = figure.axes
    assert axes.get_title() == "SAC on CartPole-v1"
    assert axes.get_xlabel() == "environment steps"
    assert axes.get_ylabel() == "return per episode"
    steps, returns = tick_labels(figure)
    assert {"0", "1M"} <= set(steps)
    assert {"0", "20k"} <= set(returns)


def test_returns_of_a_common_size_are_written_out(tmp_path: Path) -> None:
    _, returns = tick_labels(drawn(run_folder(tmp_path / "run", test=[(0, -2000.0), (10_000, 0.0)])))
    assert {"-2,000", "-1,000", "0"} <= {label.replace("\N{MINUS SIGN}", "-") for label in returns}


def test_a_run_is_its_evaluations_before_its_faint_training_episodes(tmp_path: Path) -> None:
    test, train = [(0.0, 1.0), (50.0, 4.0), (100.0, 9.0)], [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(run_folder(tmp_path / "run", test=test, train=train))
    assert sorted(legend(figure)) == ["evaluation", "training episodes, smoothed"]
    named = lines(figure)
    evaluation, training = named["evaluation"], named["training episodes, smoothed"]
    assert points(evaluation) == test
    assert points(training) == train
    assert evaluation.get_marker() == "o"
    assert (training.get_alpha() or 1.0) < 0.5 < (evaluation.get_alpha() or 1.0)
    assert evaluation.get_zorder() > training.get_zorder()
    assert color(evaluation) == color(training)
    assert figure.axes[0].get_xlim()[0] == 0


def test_a_run_without_evaluations_is_its_training_episodes(tmp_path: Path) -> None:
    train = [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(run_folder(tmp_path / "run", train=train))
    assert legend(figure) == ["training episodes, smoothed"]
    line = lines(figure)["training episodes, smoothed"]
    assert points(line) == train
    assert line.get_alpha() in (None, 1.0)


@pytest.mark.parametrize("kind", ["test", "train"])
def test_a_single_point_can_be_seen(tmp_path: Path, kind: str) -> None:
    (line,) = lines(drawn(run_folder(tmp_path / "run", **{kind: [(10, 2.0)]}))).values()  # type: ignore[arg-type]
    assert line.get_marker() == "o"


def test_many_evaluations_are_a_line_without_markers(tmp_path: Path) -> None:
    test = [(float(steps), 1.0) for steps in range(500)]
    assert lines(drawn(run_folder(tmp_path / "run", test=test)))["evaluation"].get_marker() in ("", "None")


def test_seeds_of_a_composition_make_one_line_within_a_band(tmp_path: Path) -> None:
    values = {1: [(0, 1.0), (100, 2.0)], 2: [(0, 3.0), (100, 8.0), (200, 50.0)], 3: [(0, 5.0), (100, 5.0)]}
    folders = [run_folder(tmp_path / str(seed), test=test, seed=seed, lr=0.1) for seed, test in values.items()]
    figure = drawn(*folders)
    (axes,) = figure.axes
    assert legend(figure) == ["evaluation (mean ± std of 3 runs)"]
    (line,) = axes.get_lines()
    assert points(line) == [(0, 3), (100, 5)]
    (band,) = axes.collections
    corners = {(float(steps), float(value)) for steps, value in np.asarray(band.get_paths()[0].vertices)}
    # The standard deviations are 2 and 3.
    assert corners == {(0.0, 1.0), (0.0, 5.0), (100.0, 2.0), (100.0, 8.0)}
    assert axes.get_title() == "DQN on CartPole-v1"


def test_seeds_whose_storages_are_kept_in_folders_of_their_own_make_one_line_too(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / str(seed), test=[(0, 1.0), (100, 2.0)], seed=seed, lr=0.1) for seed in (1, 2)]
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        storage = {"name": "ReplayBuffer", "hyper_parameters": {"size": 5, "directory": str(folder / "replay")}}
        (folder / "config.json").write_text(json.dumps(config | {"storage": storage}))
    assert legend(drawn(*folders)) == ["evaluation (mean ± std of 2 runs)"]


def test_seeds_measured_at_no_common_steps_are_lines_of_one_color(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "1", test=[(0, 1.0), (10, 2.0)], seed=1, lr=0.1)
    second = run_folder(tmp_path / "2", test=[(20, 3.0), (30, 4.0)], seed=2, lr=0.1)
    figure = drawn(first, second)
    one, two = figure.axes[0].get_lines()
    assert points(one) == [(0, 1), (10, 2)]
    assert points(two) == [(20, 3), (30, 4)]
    assert color(one) == color(two)
    assert len(legend(figure)) == 1


def test_runs_laid_over_each_other_are_told_apart_by_color_and_name(tmp_path: Path) -> None:
    train = [(10.0, 2.0), (60.0, 5.0)]
    figure = drawn(
        run_folder(tmp_path / "a", test=[(0, 1.0), (10, 2.0)], train=train, algorithm="DQN"),
        run_folder(tmp_path / "b", test=[(0, 3.0), (10, 4.0)], train=train, algorithm="SAC"),
        run_folder(tmp_path / "c", train=train, algorithm="PPO"),
    )
    assert legend(figure) == ["DQN", "SAC", "PPO, training"]
    named = lines(figure)
    assert points(named["DQN"]) == [(0, 1), (10, 2)]
    assert points(named["SAC"]) == [(0, 3), (10, 4)]
    assert points(named["PPO, training"]) == train
    assert len({color(line) for line in named.values()}) == 3
    faint = [line for line in figure.axes[0].get_lines() if line not in named.values()]
    assert [color(line) for line in faint] == [color(named["DQN"]), color(named["SAC"])]
    assert [points(line) for line in faint] == [train, train]
    assert figure.axes[0].get_title() == "DQN, SAC, PPO on CartPole-v1"


def test_groups_of_seeds_say_how_many_runs_they_are(tmp_path: Path) -> None:
    folders = [
        run_folder(tmp_path / f"{lr} {seed}", test=[(0, lr), (10, seed)], seed=seed, lr=lr)
        for lr in (0.1, 0.2)
        for seed in (1, 2)
    ]
    figure = drawn(*folders, run_folder(tmp_path / "alone", test=[(0, 1.0)], lr=0.3))
    assert legend(figure) == [
        "DQN, lr=0.1 (mean ± std of 2 runs)",
        "DQN, lr=0.2 (mean ± std of 2 runs)",
        "DQN, lr=0.3",
    ]


def test_no_two_of_many_runs_look_the_same_and_their_legend_hides_no_curve(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / str(lr), test=[(0, 1.0), (10, lr)], lr=lr) for lr in range(24)]
    figure = drawn(*folders)
    named = lines(figure)
    assert legend(figure) == [f"DQN, lr={lr}" for lr in range(24)]
    assert len({(color(line), str(line.get_linestyle())) for line in named.values()}) == 24
    figure.canvas.draw()
    (box,) = figure.legends
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    assert box.get_window_extent(renderer).x0 >= figure.axes[0].get_window_extent(renderer).x1


def test_a_run_named_twice_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    save = Figure.savefig

    def watched(self: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", watched)
    folder = run_folder(tmp_path / "run", test=[(0, 1.0), (10, 2.0)], lr=0.1)
    plot_runs([folder, folder], tmp_path / "curve.png")
    assert legend(figures[0]) == ["evaluation"]


@pytest.mark.parametrize("name", ["curve.pdf", "curve", "png"])
def test_a_picture_that_is_to_be_no_png_is_refused(tmp_path: Path, name: str) -> None:
    folder = run_folder(tmp_path / "run", test=[(0, 1.0)])
    with pytest.raises(ValueError, match=r"its name must end in \.png, got '.*" + name):
        plot_runs([folder], tmp_path / name)
    assert not (tmp_path / name).exists()


def test_nothing_to_plot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run folder was named"):
        plot_runs([], tmp_path / "curve.png")


def test_one_run_that_cannot_be_read_leaves_the_old_picture(tmp_path: Path) -> None:
    good = run_folder(tmp_path / "good", test=[(0, 1.0)])
    without_metrics, without_returns = tmp_path / "other", run_folder(tmp_path / "young")
    without_metrics.mkdir()
    MetricsFile(without_returns / "metrics.jsonl").write({"steps": 10, "losses/q": 1.0})
    output = tmp_path / "curve.png"
    output.write_bytes(b"the old picture")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        plot_runs([good, tmp_path / "nowhere"], output)
    with pytest.raises(FileNotFoundError, match="other is not a run folder"):
        plot_runs([good, without_metrics], output)
    with pytest.raises(ValueError, match="young has not measured a return yet"):
        plot_runs([good, without_returns], output)
    assert output.read_bytes() == b"the old picture"


def test_a_drawing_that_fails_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
