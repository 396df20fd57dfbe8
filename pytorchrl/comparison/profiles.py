"""Performance profiles: the share of runs above each score."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytorchrl.comparison.pictures import (
    beginning_of_title,
    chosen_or,
    drawable,
    figure_of,
    meaning_of_scores,
    shown_groups,
    style_axes,
)
from pytorchrl.comparison.results import Comparison
from pytorchrl.logging.bootstrap import CONFIDENCE, SEED, Floats
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.label_fitting import fit_labels, points_of
from pytorchrl.logging.pictures.legends import Entry, Legend
from pytorchrl.logging.pictures.own_axes import OF_FILES, TO_DRAW_INTO, check_axes
from pytorchrl.logging.pictures.plots import refuse_other_formats, save_figure, save_text
from pytorchrl.logging.pictures.styles import DISTINCT_COLORS, in_figure
from pytorchrl.logging.tables.evaluation_table import csv_of
from storages.component.other_names import naming_arguments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RESAMPLES = 1_000


@naming_arguments({**OF_FILES, "ax": {"": "prl.profile_axes(comparison, axes=axes)"}})
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
    if output.suffix.lower() == ".csv":
        shown = shown_groups(comparison, options)
        at, profiles = _profiles_of(comparison)
        return save_text(csv_of(_points(at, {label: profiles[name] for name, (label, _) in shown.items()})), output)
    with options.applied():
        return save_figure(_figure(comparison, options), output, options.dpi)


@naming_arguments(TO_DRAW_INTO)
def profile_axes(comparison: Comparison, *, axes: "Axes | None" = None, options: FigureOptions | None = None) -> "Axes":
    """Draw what :func:`draw_profile` does, and return matplotlib's axes to go on with.

    Args:
        comparison: what is drawn.
        axes: matplotlib's axes to draw into; None makes a figure. No legend is drawn then, unless its place is
            "inside": the lines have labels.
        options: sizes of texts, labels, legend, names and order.

    Raises:
        TypeError: ``axes`` are none.
        ValueError: there is no group to draw, or ``options`` give a size beside axes.
    """
    options = options or FigureOptions()
    with options.applied():
        if axes is None:
            return _figure(comparison, options).axes[0]
        check_axes([axes], options)
        legend = _legend(comparison, options)
        _draw(axes, comparison, options, legend.entries)
        if options.legend_place == "inside":
            legend.add_to_axes(axes)
        return axes


def _profiles_of(comparison: Comparison) -> tuple[Floats, dict[str, tuple[Floats, Floats, Floats]]]:
    """Return the scores at which profiles change, and the profile of each group."""
    results = drawable(comparison)
    at = thresholds([scores for result in results for scores in result.scores.values()])
    return at, {result.name: performance_profile(result.scores, at) for result in results}


def _figure(comparison: Comparison, options: FigureOptions) -> "Figure":
    legend = _legend(comparison, options)
    figure = figure_of(options.size or legend.size_with(8.0, 4.5))
    _draw(figure.add_subplot(), comparison, options, legend.entries)
    legend.add_to(figure)
    fit_labels(figure)
    return figure


def _legend(comparison: Comparison, options: FigureOptions) -> Legend:
    results = {result.name: result for result in drawable(comparison)}
    shown = shown_groups(comparison, options)
    beginning = options.shared_beginning([label for label, _ in shown.values()])
    # The curves of these runs count those of all environments.
    each = f" in each of {len(comparison.environments)} environments" if len(comparison.environments) > 1 else ""
    counts = {name: results[name].seeds if options.counts else "1" for name in shown}
    # The note says the number of runs where it is that of all groups.
    common = min(counts.values()) if len(set(counts.values())) == 1 else ""
    entries = []
    for name, (whole_label, look) in shown.items():
        label = whole_label.removeprefix(beginning)
        is_counted = not common and counts[name] != "1"
        text = f"{label} ({counts[name]} runs{each})" if is_counted else label
        entries.append(Entry(text, look.color, marker=look.marker if look.is_repeated else ""))
    interval = "with 95% bootstrap intervals" if _has_bands(comparison) else ""
    runs = f"{common} runs{each}" if common not in ("", "1") else ""
    return Legend(entries, ", ".join(filter(None, (runs, interval))) if options.note else "", options)


def _has_bands(comparison: Comparison) -> bool:
    return len(comparison.main) <= DISTINCT_COLORS


def _draw(axes: "Axes", comparison: Comparison, options: FigureOptions, entries: Sequence[Entry]) -> None:
    """Draw a line for each entry of the legend, and label the axes."""
    results = {result.name: result for result in drawable(comparison)}
    at, profiles = _profiles_of(comparison)
    for name, entry in zip(shown_groups(comparison, options), entries, strict=True):
        shares, low, high = profiles[name]
        every, label = max(1, len(at) // 8), in_figure(entry.label)
        axes.step(at, shares, where="post", color=entry.color, marker=entry.marker, markevery=every, label=label)
        if _has_bands(comparison) and results[name].iqm.has_interval:
            axes.fill_between(at, low, high, step="post", color=entry.color, alpha=0.16, linewidth=0)
    size = points_of("axes.labelsize")
    axes.set_xlabel(in_figure(chosen_or(options.x_label, f"{meaning_of_scores(comparison)} τ")), fontsize=size)
    axes.set_ylabel(in_figure(chosen_or(options.y_label, "share of runs with more than τ")), fontsize=size)
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(in_figure(chosen_or(options.title, f"{beginning_of_title(comparison)}performance profiles")))
    style_axes(axes)


def _points(at: Floats, profiles: Mapping[str, tuple[Floats, Floats, Floats]]) -> list[dict[str, object]]:
    """Return a record for each point of performance profiles; bounds that are not known are empty."""
    return [
        {"group": name, "score": score, "share": share}
        | {side: "" if math.isnan(bound) else bound for side, bound in (("low", low), ("high", high))}
        for name, profile in profiles.items()
        for score, share, low, high in zip(at.tolist(), *(column.tolist() for column in profile), strict=True)
    ]


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
