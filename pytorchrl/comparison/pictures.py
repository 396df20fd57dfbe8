"""Plots of comparisons: intervals and probabilities of improvement."""

import os
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.comparison.improvement import Improvement
from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.tables import as_csv
from pytorchrl.logging.bootstrap import Estimate
from pytorchrl.logging.groups import shown_environment
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.label_fitting import characters_in, fit_labels, points_of
from pytorchrl.logging.pictures.own_axes import OF_FILES, TO_DRAW_INTO, check_axes
from pytorchrl.logging.pictures.plots import refuse_other_formats, save_figure, save_text
from pytorchrl.logging.pictures.styles import GroupStyle, in_figure, style_of
from storages.component.other_names import naming_arguments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CHARACTERS_OF_A_NAME = 32
_SHARE_OF_NAMES = 0.3
"""Share of the width of a figure of a given size that names have."""
_SMALLEST_POINTS = 4.5
_POINTS_PER_INCH = 72.0
_LINE_HEIGHT = 1.2
"""Relative to the size of the font."""
_DOT, _MARKER, _BAR = 1.0, 1.75, 2.8
"""Sizes of a run's dot and of a statistic's marker, and width of an interval, relative to the usual of lines."""


@naming_arguments({**OF_FILES, "ax": {"": "prl.comparison_axes(comparison, axes=axes)"}})
def draw_comparison(
    comparison: Comparison, output: str | os.PathLike[str], options: FigureOptions | None = None
) -> Path:
    """Draw interquartile means and probabilities of improvement, with their intervals, into a PNG, SVG or PDF file.

    With several environments, the normalised scores of all are drawn. Small dots are the scores of the runs. A file
    that ends in ``.csv`` has the numbers.

    Args:
        comparison: what is drawn.
        output: the file.
        options: size, labels, names and order; the labels are those of the left panel.

    Raises:
        ValueError: the file's name ends otherwise, or there is no group to draw.
    """
    output = Path(output)
    refuse_other_formats(output)
    if output.suffix.lower() == ".csv":
        return save_text(as_csv(comparison), output)
    options = options or FigureOptions()
    with options.applied():
        return save_figure(_intervals(comparison, options), output, options.dpi)


@naming_arguments(TO_DRAW_INTO)
def comparison_axes(
    comparison: Comparison, *, axes: "Axes | Sequence[Axes] | None" = None, options: FigureOptions | None = None
) -> list["Axes"]:
    """Draw what :func:`draw_comparison` does, and return matplotlib's axes to go on with.

    Args:
        comparison: what is drawn.
        axes: matplotlib's axes to draw into: one for the interquartile means, or two, of which the second is for the
            probabilities of improvement; None makes a figure.
        options: sizes of texts, labels, names and order.

    Returns:
        The axes of the interquartile means, and those of the probabilities where these are drawn.

    Raises:
        TypeError: ``axes`` are none.
        ValueError: there is no group to draw, there are more than two axes, or two where there is no improvement to
            draw, or ``options`` give a size beside axes.
    """
    options = options or FigureOptions()
    with options.applied():
        if axes is None:
            return list(_intervals(comparison, options).axes)
        given = list(axes) if isinstance(axes, Iterable) else [axes]
        check_axes(given, options)
        most = 2 if _improvements(comparison) else 1
        if not 1 <= len(given) <= most:
            raise ValueError(
                f"axes: this comparison is drawn into {'one or two' if most == 2 else 'one'}, got {len(given)}"
            )
        _draw_intervals(comparison, given, options)
        for one in given:
            style_axes(one)
        given[0].set_title(in_figure(_heading_of_intervals(comparison, options)))
        return given


def _improvements(comparison: Comparison) -> dict[str, Improvement]:
    """Return the improvements of the groups that are drawn, by their names."""
    names = {result.name for result in drawable(comparison)}
    return {better.name: better for better in comparison.improvements if better.name in names}


def _heading_of_intervals(comparison: Comparison, options: FigureOptions) -> str:
    return chosen_or(options.title, f"{beginning_of_title(comparison)}95% bootstrap intervals")


def _intervals(comparison: Comparison, options: FigureOptions) -> "Figure":
    labels = [label for label, _ in shown_groups(comparison, options).values()]
    columns = 2 if _improvements(comparison) else 1
    wrapped = _names_in_lines(labels, options)
    height = 1.6 + sum(0.16 * (name.count("\n") + 2) for name in wrapped)
    figure = figure_of(options.size or (10.0 if columns == 2 else 7.0, max(2.6, height)))
    grid = list(figure.subplots(1, columns, squeeze=False, sharey=True)[0])
    _draw_intervals(comparison, grid, options)
    for axes in grid:
        style_axes(axes)
    if heading := _heading_of_intervals(comparison, options):
        figure.suptitle(in_figure(heading))
    fit_labels(figure)
    if options.font_size is None:
        _shrink_names(figure, sum(name.count("\n") + 1.5 for name in wrapped))
    return figure


def _names_in_lines(shown: Collection[str], options: FigureOptions) -> list[str]:
    """Return the names of groups as they stand beside the left panel."""
    beginning = options.shared_beginning(shown)
    return [in_figure(_wrapped(name.removeprefix(beginning), options)) for name in shown]


def _draw_intervals(comparison: Comparison, grid: Sequence["Axes"], options: FigureOptions) -> None:
    """Draw interquartile means into the first axes, and probabilities of improvement into the second where given."""
    from matplotlib import rcParams

    results = {result.name: result for result in drawable(comparison)}
    shown = shown_groups(comparison, options)
    labels = [label for label, _ in shown.values()]
    improvements = _improvements(comparison) if len(grid) > 1 else {}
    for number, (name, (_, look)) in enumerate(shown.items()):
        result = results[name]
        _draw_estimate(grid[0], number, result.iqm, look.color)
        every = [score for scores in result.scores.values() for score in scores.tolist()]
        dots = {"markersize": _DOT * rcParams["lines.markersize"], "alpha": 0.6}
        grid[0].plot(every, [number + 0.28] * len(every), ".", color=look.color, **dots)
        if better := improvements.get(name):
            _draw_estimate(grid[1], number, better.probability, look.color)
    size = points_of("axes.labelsize")
    grid[0].set_yticks(range(len(shown)), _names_in_lines(labels, options))
    grid[0].set_ylim(len(shown) - 0.4, -0.6)
    grid[0].set_ylabel(in_figure(options.y_label or ""), fontsize=size)
    x_label = chosen_or(options.x_label, f"{meaning_of_scores(comparison)}: interquartile mean")
    grid[0].set_xlabel(in_figure(x_label), fontsize=size)
    if improvements:
        beginning = options.shared_beginning(labels)
        baseline = options.names.get(comparison.baseline, comparison.baseline).removeprefix(beginning)
        grid[1].axvline(0.5, color="#555555", linestyle=":", linewidth=1)
        grid[1].set_xlim(-0.03, 1.03)
        grid[1].set_xlabel(in_figure(f"probability of improvement over {baseline}"), fontsize=size)
        if not grid[1].get_shared_y_axes().joined(grid[0], grid[1]):
            grid[1].set_yticks(range(len(shown)), [""] * len(shown))
            grid[1].set_ylim(grid[0].get_ylim())


def _shrink_names(figure: "Figure", lines: float) -> None:
    """Make the names of groups as small as a number of lines needs to fit beside the left panel."""
    figure.draw_without_rendering()
    height = figure.axes[0].get_window_extent().height / figure.dpi
    points = _POINTS_PER_INCH * height / (_LINE_HEIGHT * lines)
    if points < points_of("ytick.labelsize"):
        figure.axes[0].tick_params(axis="y", labelsize=max(_SMALLEST_POINTS, points))


def chosen_or(chosen: str | None, usual: str) -> str:
    """Return a text of the options where one was chosen."""
    return usual if chosen is None else chosen


def shown_groups(comparison: Comparison, options: FigureOptions) -> dict[str, tuple[str, GroupStyle]]:
    """Return the label and the look of each group that is drawn, by its name, in the order of the figure.

    The looks are those of learning curves, which also show groups that have no runs in some environment.
    """
    drawn = {result.name for result in drawable(comparison)}
    labels = options.shown_names(result.name for result in comparison.results)
    return {
        name: (label, style_of(label, number, options.colors))
        for number, (name, label) in enumerate(labels.items())
        if name in drawn
    }


def drawable(comparison: Comparison) -> Sequence[GroupResult]:
    """Return the results that figures show.

    Raises:
        ValueError: no group has runs in all environments.
    """
    if not comparison.main:
        raise ValueError(
            f"no group has runs in all of {', '.join(comparison.environments)}; compare each environment separately"
        )
    return comparison.main


def figure_of(size: tuple[float, float]) -> "Figure":
    """Make a figure of a size in inches."""
    # Slow to import, and not needed for tables.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_estimate(axes: "Axes", height: int, estimate: Estimate, color: str) -> None:
    from matplotlib import rcParams

    axes.plot([estimate.value], [height], "o", color=color, markersize=_MARKER * rcParams["lines.markersize"])
    if estimate.has_interval:
        bounds, width = [estimate.low, estimate.high], _BAR * rcParams["lines.linewidth"]
        axes.plot(bounds, [height, height], color=color, linewidth=width, alpha=0.35, solid_capstyle="butt")


def style_axes(axes: "Axes") -> None:
    """Set grid, spines and sizes of ticks."""
    # Ticks are made when they are drawn, when matplotlib's parameters may be others.
    for name in ("xtick", "ytick"):
        axes.tick_params(axis=name[0], labelsize=points_of(f"{name}.labelsize"))  # type: ignore[arg-type]
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _wrapped(name: str, options: FigureOptions) -> str:
    room = _CHARACTERS_OF_A_NAME
    if options.size is not None:
        room = min(room, characters_in(_SHARE_OF_NAMES * options.size[0], points_of("ytick.labelsize")))
    return textwrap.fill(name, room, break_long_words=options.size is None)


def meaning_of_scores(comparison: Comparison) -> str:
    """Return the label of scores, such as "final return"."""
    what = "return" if comparison.metric.endswith("/return") else comparison.metric
    which = "final" if comparison.score == "final" else "last ten"
    return f"{which} {what}" + (", normalised" if len(comparison.environments) > 1 else "")


def beginning_of_title(comparison: Comparison) -> str:
    """Return the environments, and a colon."""
    envs = comparison.environments
    where = f"{len(envs)} environments" if len(envs) > 1 else shown_environment(envs[0])
    return f"{where}: " if where else ""
