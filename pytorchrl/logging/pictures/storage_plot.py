"""Histograms of a storage's contents."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.formats import counted
from pytorchrl.logging.pictures.plots import refuse_other_than_png
from pytorchrl.logging.pictures.styles import in_figure
from storages.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pytorchrl.experiments.inspection.overview import Inspection

_MOST_BINS = 50
_WIDE = 100
"""Ratio of the largest to the smallest priority above which the axis is logarithmic."""


def plot_storage(inspection: "Inspection", output: Path) -> Path:
    """Draw histograms of returns, lengths, priorities and ages into a PNG file.

    Raises:
        ValueError: nothing is stored, or ``output`` does not end in .png.
    """
    output = Path(output)
    refuse_other_than_png(output)
    if inspection.episodes is None:
        raise ValueError(f"{inspection.path}: the storage is empty; there is nothing to draw")
    figure = _figure(inspection)
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        figure.savefig(file, format="png")
    return output


def _figure(inspection: "Inspection") -> "Figure":
    # Slow to import. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert inspection.episodes is not None
    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    priorities, whole = inspection.priorities, inspection.episodes.whole
    lower: list[Any] = ["ages", "ages"] if priorities is None else ["priorities", "ages"]
    axes = figure.subplot_mosaic([["returns", "lengths"], lower])
    count = counted(int(np.count_nonzero(whole)), "whole episode")
    _draw_episodes(axes["returns"], inspection.episodes.returns[whole], f"Returns of {count}", "return")
    _draw_episodes(axes["lengths"], inspection.episodes.lengths[whole], f"Lengths of {count}", "environment steps")
    if priorities is None:
        ages = inspection.steps - 1 - np.repeat(np.arange(inspection.steps), inspection.num_envs)
        _draw_ages(axes["ages"], ages, "Age of stored transitions", "share of transitions", np.ones(len(ages)))
    else:
        title = f"Priorities of {counted(len(priorities.values), priorities.of)}"
        _draw_priorities(axes["priorities"], priorities.values, title, f"{priorities.of}s")
        # Where all priorities are zero, transitions are drawn uniformly.
        weights = priorities.values if priorities.values.any() else np.ones(len(priorities.values))
        _draw_ages(axes["ages"], priorities.ages, "Age of prioritised samples", "share of draws", weights)
    figure.suptitle(
        f"{in_figure(inspection.name)}: {counted(inspection.transitions, 'transition')} of "
        f"{counted(inspection.num_envs, 'environment')}"
    )
    return figure


def _draw_episodes(axes: "Axes", values: NDArray[Any], title: str, unit: str) -> None:
    finite = values[np.isfinite(values)]
    if len(finite):
        title += f", mean {finite.mean():,.4g}"
    if _style_axes(axes, finite, title, unit, "episodes"):
        axes.hist(finite, bins=_bins(finite), color="C0")
        axes.axvline(finite.mean(), color="C1", linestyle="--")
        if finite.min() == finite.max():
            # Else a single bar would fill the whole axis.
            axes.set_xlim(finite[0] - 2.5, finite[0] + 2.5)


def _draw_priorities(axes: "Axes", values: NDArray[np.float64], title: str, counted_as: str) -> None:
    positive = values[values > 0]
    if len(positive) < len(values):
        title += f",\n{len(values) - len(positive):,} of them zero and not drawn"
    if not _style_axes(axes, positive, title, "priority", counted_as):
        return
    smallest, largest = positive.min(), positive.max()
    if largest > _WIDE * smallest:
        # In bins of equal width, a few large priorities would leave all others in one bin.
        axes.hist(positive, bins=np.geomspace(smallest, largest, _MOST_BINS + 1).tolist(), color="C0")
        axes.set_xscale("log")
    else:
        axes.hist(positive, bins=_bins(positive), color="C0")
    axes.set_yscale("log")
    # On a logarithmic axis from 1, a bar of one would have no height.
    axes.set_ylim(bottom=0.5)


def _draw_ages(
    axes: "Axes", ages: NDArray[np.int64], title: str, counted_as: str, weights: NDArray[np.float64]
) -> None:
    from matplotlib.ticker import PercentFormatter

    if _style_axes(axes, ages, title, "environment steps ago", counted_as):
        axes.hist(ages, bins=_bins(ages), weights=weights / weights.sum(), color="C0")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _bins(values: NDArray[Any]) -> Sequence[float] | int:
    """Return the edges of bins with equally many integers for integer values, else the number of bins."""
    most = min(_MOST_BINS, 2 * int(np.ceil(np.sqrt(len(values)))))
    if (values != np.round(values)).any():
        return most
    low, high = float(values.min()), float(values.max())
    width = float(np.ceil((high - low + 1) / most))
    return [low - 0.5 + width * edge for edge in range(int((high - low) // width) + 2)]


def _style_axes(axes: "Axes", values: NDArray[Any], title: str, unit: str, counted_as: str) -> bool:
    """Label the axes; return whether there is anything to draw."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(title, fontsize="medium")
    if not len(values):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes, color="gray")
        return False
    axes.set_xlabel(unit)
    axes.set_ylabel(counted_as)
    whole = bool((values == np.round(values)).all())
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer="share" not in counted_as, min_n_ticks=1))
    if np.abs(values).max() >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return True
