"""Plots of comparisons: intervals, probabilities of improvement, performance profiles."""

import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.tables import as_csv
from pytorchrl.logging.bootstrap import CONFIDENCE, SEED, Estimate, Floats
from pytorchrl.logging.groups import shown_environment
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.label_fitting import characters_in, fit_labels, points_of
from pytorchrl.logging.pictures.legends import Entry, Legend
from pytorchrl.logging.pictures.plots import refuse_other_formats, save_figure, save_text
from pytorchrl.logging.pictures.styles import DISTINCT_COLORS, in_figure, style_for
from pytorchrl.logging.tables.evaluation_table import csv_of

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
        return save_figure(_intervals(comparison, options), output)


def _intervals(comparison: Comparison, options: FigureOptions) -> "Figure":
    from matplotlib import rcParams

    results = {result.name: result for result in _drawable(comparison)}
    shown = options.shown_names(results)
    improvements = {better.name: better for better in comparison.improvements if better.name in results}
    beginning = options.shared_beginning(shown.values())
    wrapped = [in_figure(_wrapped(name.removeprefix(beginning), options)) for name in shown.values()]
    height = 1.6 + sum(0.16 * (name.count("\n") + 2) for name in wrapped)
    size = options.size or (10.0 if improvements else 7.0, max(2.6, height))
    figure = _figure(size)
    grid = figure.subplots(1, 2 if improvements else 1, squeeze=False, sharey=True)[0]
    for number, name in enumerate(shown):
        look, result = style_for(number), results[name]
        _draw_estimate(grid[0], number, result.iqm, look.color)
        every = [score for scores in result.scores.values() for score in scores.tolist()]
        dots = {"markersize": _DOT * rcParams["lines.markersize"], "alpha": 0.6}
        grid[0].plot(every, [number + 0.28] * len(every), ".", color=look.color, **dots)
        if better := improvements.get(name):
            _draw_estimate(grid[1], number, better.probability, look.color)
    grid[0].set_yticks(range(len(shown)), wrapped)
    grid[0].set_ylim(len(shown) - 0.4, -0.6)
    grid[0].set_ylabel(in_figure(options.y_label or ""))
    grid[0].set_xlabel(in_figure(_text(options.x_label, f"{_meaning(comparison)}: interquartile mean")))
    if improvements:
        baseline = options.names.get(comparison.baseline, comparison.baseline).removeprefix(beginning)
        grid[1].axvline(0.5, color="#555555", linestyle=":", linewidth=1)
        grid[1].set_xlim(-0.03, 1.03)
        grid[1].set_xlabel(in_figure(f"probability of improvement over {baseline}"))
    for axes in grid:
        _style_axes(axes)
    heading = _text(options.title, f"{_where(comparison)}95% bootstrap intervals")
    if heading:
        figure.suptitle(in_figure(heading))
    fit_labels(figure)
    if options.font_size is None:
        _shrink_names(figure, sum(name.count("\n") + 1.5 for name in wrapped))
    return figure


def _shrink_names(figure: "Figure", lines: float) -> None:
    """Make the names of groups as small as a number of lines needs to fit beside the left panel."""
    figure.draw_without_rendering()
    height = figure.axes[0].get_window_extent().height / figure.dpi
    points = _POINTS_PER_INCH * height / (_LINE_HEIGHT * lines)
    if points < points_of("ytick.labelsize"):
        figure.axes[0].tick_params(axis="y", labelsize=max(_SMALLEST_POINTS, points))


def draw_profile(comparison: Comparison, output: str | os.PathLike[str], options: FigureOptions | None = None) -> Path:
    """Draw performance profiles, with their intervals, into a PNG, SVG or PDF file.

    A line shows the share of a group's runs above each score; higher is better. With several environments, the scores
    are normalised, and the share is the mean over environments. A file that ends in ``.csv`` has the numbers.

    Args:
        comparison: what is drawn.
        output: the file.
        options: size, labels, legend names and order.

    Raises:
        ValueError: the file's name ends otherwise, or there is no group to draw.
    """
    output = Path(output)
    refuse_other_formats(output)
    options = options or FigureOptions()
    results = {result.name: result for result in _drawable(comparison)}
    shown = options.shown_names(results)
    at = thresholds([scores for result in results.values() for scores in result.scores.values()])
    profiles = {name: performance_profile(results[name].scores, at) for name in shown}
    if output.suffix.lower() == ".csv":
        return save_text(csv_of(_points(at, {shown[name]: profile for name, profile in profiles.items()})), output)
    with options.applied():
        return save_figure(_profiles(comparison, options, at, profiles), output)


def _profiles(
    comparison: Comparison, options: FigureOptions, at: Floats, profiles: Mapping[str, tuple[Floats, Floats, Floats]]
) -> "Figure":
    results = {result.name: result for result in comparison.main}
    shown = options.shown_names(results)
    looks = [style_for(number) for number in range(len(shown))]
    beginning = options.shared_beginning(shown.values())
    labels = {name: label.removeprefix(beginning) for name, label in shown.items()}
    # The curves of these runs count those of all environments.
    each = f" in each of {len(comparison.environments)} environments" if len(comparison.environments) > 1 else ""
    counts = {name: results[name].seeds if options.counts else "1" for name in shown}
    # The note says the number of runs where it is that of all groups.
    common = min(counts.values()) if len(set(counts.values())) == 1 else ""
    entries = [
        Entry(
            label if common or counts[name] == "1" else f"{label} ({counts[name]} runs{each})",
            look.color,
            marker=look.marker if look.is_repeated else "",
        )
        for (name, label), look in zip(labels.items(), looks, strict=True)
    ]
    has_bands = len(shown) <= DISTINCT_COLORS
    interval = "with 95% bootstrap intervals" if has_bands else ""
    runs = f"{common} runs{each}" if common not in ("", "1") else ""
    legend = Legend(entries, ", ".join(filter(None, (runs, interval))) if options.note else "", options)
    figure = _figure(options.size or legend.size_with(8.0, 4.5))
    axes = figure.add_subplot()
    for (name, (shares, low, high)), look in zip(profiles.items(), looks, strict=True):
        marker = look.marker if look.is_repeated else ""
        axes.step(at, shares, where="post", color=look.color, marker=marker, markevery=max(1, len(at) // 8))
        if has_bands and results[name].iqm.has_interval:
            axes.fill_between(at, low, high, step="post", color=look.color, alpha=0.16, linewidth=0)
    axes.set_xlabel(in_figure(_text(options.x_label, f"{_meaning(comparison)} τ")))
    axes.set_ylabel(in_figure(_text(options.y_label, "share of runs with more than τ")))
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(in_figure(_text(options.title, f"{_where(comparison)}performance profiles")))
    _style_axes(axes)
    legend.add_to(figure)
    fit_labels(figure)
    return figure


def _text(chosen: str | None, usual: str) -> str:
    return usual if chosen is None else chosen


def _points(at: Floats, profiles: Mapping[str, tuple[Floats, Floats, Floats]]) -> list[dict[str, object]]:
    """Return a record for each point of performance profiles; bounds that are not known are empty."""
    return [
        {"group": name, "score": score, "share": share}
        | {side: "" if math.isnan(bound) else bound for side, bound in (("low", low), ("high", high))}
        for name, profile in profiles.items()
        for score, share, low, high in zip(at.tolist(), *(column.tolist() for column in profile), strict=True)
    ]


def _drawable(comparison: Comparison) -> Sequence[GroupResult]:
    if not comparison.main:
        raise ValueError(
            f"no group has runs in all of {', '.join(comparison.environments)}; compare each environment separately"
        )
    return comparison.main


def _figure(size: tuple[float, float]) -> "Figure":
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


def _style_axes(axes: "Axes") -> None:
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


def _meaning(comparison: Comparison) -> str:
    what = "return" if comparison.metric.endswith("/return") else comparison.metric
    which = "final" if comparison.score == "final" else "last ten"
    return f"{which} {what}" + (", normalised" if len(comparison.environments) > 1 else "")


def _where(comparison: Comparison) -> str:
    envs = comparison.environments
    where = f"{len(envs)} environments" if len(envs) > 1 else shown_environment(envs[0])
    return f"{where}: " if where else ""


_RESAMPLES = 1_000


def thresholds(scores: Sequence[Floats]) -> Floats:
    """Return the scores at which profiles change, with one below and one above all of them."""
    every = np.unique(np.concatenate(scores))
    margin = 0.02 * (every[-1] - every[0]) or 1.0
    return np.concatenate([[every[0] - margin], every, [every[-1] + margin]])


def performance_profile(scores: Mapping[str, Floats], at: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the share of runs above each score, averaged over environments, with 95% bootstrap intervals.

    After Agarwal et al., 2021, equation 1 (score distribution).

    Args:
        scores: by environment, of shape (runs,).
        at: the scores, of shape (points,).

    Returns:
        The shares and the bounds of their intervals, which are NaN where an environment has a single run.
    """
    larger = [some[:, None] > at for some in scores.values()]  # (runs, points)
    shares = np.mean([of_env.mean(axis=0) for of_env in larger], axis=0)
    if min(map(len, larger)) < 2:
        return shares, np.full(len(at), np.nan), np.full(len(at), np.nan)
    generator = np.random.default_rng(SEED)
    drawn = np.mean([_resampled_shares(of_env, generator) for of_env in larger], axis=0)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return shares, low, high


def _resampled_shares(larger: NDArray[np.bool_], generator: np.random.Generator) -> Floats:
    """Return the shares of bootstrap resamples, of shape (resamples, points)."""
    runs = len(larger)
    counts = generator.multinomial(runs, np.full(runs, 1 / runs), size=_RESAMPLES)  # (resamples, runs)
    return np.asarray(counts @ larger / runs, np.float64)
