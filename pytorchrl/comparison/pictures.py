"""Plots of comparisons: intervals, probabilities of improvement, performance profiles."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.logging.bootstrap import CONFIDENCE, SEED, Estimate, Floats
from pytorchrl.logging.pictures.legends import Entry, Legend
from pytorchrl.logging.pictures.looks import DISTINCT_COLORS, look_of
from pytorchrl.logging.pictures.plots import refuse_other_formats, save_figure
from pytorchrl.logging.pictures.texts import in_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CHARACTERS_OF_A_NAME = 32


def draw_comparison(comparison: Comparison, output: str | os.PathLike[str]) -> Path:
    """Draw interquartile means and probabilities of improvement, with their intervals, into a PNG or SVG file.

    With several environments, the normalised scores of all are drawn. Small dots are the scores of the runs.

    Raises:
        ValueError: the picture's name ends otherwise than in .png or .svg, or there is no group to draw.
    """
    refuse_other_formats(Path(output))
    results = _drawable(comparison)
    names = [result.name for result in results]
    improvements = [better for better in comparison.improvements if better.name in names]
    height = 1.6 + sum(0.16 * (_wrapped(name).count("\n") + 2) for name in names)
    figure = _figure((10.0 if improvements else 7.0, max(2.6, height)))
    grid = figure.subplots(1, 2 if improvements else 1, squeeze=False, sharey=True)[0]
    for number, result in enumerate(results):
        look = look_of(number)
        _draw_estimate(grid[0], number, result.iqm, look.color)
        every = [score for scores in result.scores.values() for score in scores.tolist()]
        grid[0].plot(every, [number + 0.28] * len(every), ".", color=look.color, markersize=4, alpha=0.6)
        if better := next((one for one in improvements if one.name == result.name), None):
            _draw_estimate(grid[1], number, better.probability, look.color)
    grid[0].set_yticks(range(len(names)), [in_figure(_wrapped(name)) for name in names])
    grid[0].set_ylim(len(names) - 0.4, -0.6)
    grid[0].set_xlabel(in_figure(f"{_meaning(comparison)}: interquartile mean"))
    if improvements:
        grid[1].axvline(0.5, color="#555555", linestyle=":", linewidth=1)
        grid[1].set_xlim(-0.03, 1.03)
        grid[1].set_xlabel(in_figure(textwrap.fill(f"probability of improvement over {comparison.baseline}", 50)))
    for axes in grid:
        _style_axes(axes)
    figure.suptitle(in_figure(f"{_where(comparison)}95% bootstrap intervals"), fontsize="medium")
    return save_figure(figure, Path(output))


def draw_profile(comparison: Comparison, output: str | os.PathLike[str]) -> Path:
    """Draw performance profiles, with their intervals, into a PNG or SVG file.

    A line shows the share of a group's runs above each score; higher is better. With several environments, the scores
    are normalised, and the share is the mean over environments.

    Raises:
        ValueError: the picture's name ends otherwise than in .png or .svg, or there is no group to draw.
    """
    refuse_other_formats(Path(output))
    results = _drawable(comparison)
    at = thresholds([scores for result in results for scores in result.scores.values()])
    looks = [look_of(number) for number in range(len(results))]
    entries = [
        Entry(
            f"{result.name} ({result.seeds} {'run' if result.seeds == '1' else 'runs'})",
            look.color,
            marker=look.marker if look.is_repeated else "",
        )
        for result, look in zip(results, looks, strict=True)
    ]
    has_bands = len(results) <= DISTINCT_COLORS
    legend = Legend(entries, "with 95% bootstrap intervals" if has_bands else "")
    figure = _figure(legend.size_with(8.0, 4.5))
    axes = figure.add_subplot()
    for result, look in zip(results, looks, strict=True):
        shares, low, high = performance_profile(result.scores, at)
        marker = look.marker if look.is_repeated else ""
        axes.step(
            at, shares, where="post", color=look.color, marker=marker, markersize=4, markevery=max(1, len(at) // 8)
        )
        if has_bands and result.iqm.has_interval:
            axes.fill_between(at, low, high, step="post", color=look.color, alpha=0.16, linewidth=0)
    axes.set_xlabel(in_figure(f"{_meaning(comparison)} τ"))
    axes.set_ylabel("share of runs with more than τ")
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(in_figure(f"{_where(comparison)}performance profiles"), fontsize="medium")
    _style_axes(axes)
    legend.add_to(figure)
    return save_figure(figure, Path(output))


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
    axes.plot([estimate.value], [height], "o", color=color, markersize=7)
    if estimate.has_interval:
        axes.plot(
            [estimate.low, estimate.high], [height, height], color=color, linewidth=5, alpha=0.35, solid_capstyle="butt"
        )


def _style_axes(axes: "Axes") -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _wrapped(name: str) -> str:
    return textwrap.fill(name, _CHARACTERS_OF_A_NAME)


def _meaning(comparison: Comparison) -> str:
    what = "return" if comparison.metric.endswith("/return") else comparison.metric
    which = "final" if comparison.score == "final" else "last ten"
    return f"{which} {what}" + (", normalised" if len(comparison.environments) > 1 else "")


def _where(comparison: Comparison) -> str:
    envs = comparison.environments
    where = f"{len(envs)} environments" if len(envs) > 1 else envs[0]
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
