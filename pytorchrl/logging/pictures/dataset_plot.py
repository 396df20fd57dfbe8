"""Plot of a data set: returns, lengths, rewards, actions, and coverage of observations."""

import base64
import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.pictures.dataset_sample import DatasetSample, data_warnings
from pytorchrl.logging.pictures.styles import in_figure, style_for
from storages.datasets import Dataset, references_of
from storages.datasets.dataset import action_names_of
from storages.files import replacing
from storages.transition import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".html")
_MOST_BINS = 40
_WHOLE = ("episode", "steps")
"""Labels of horizontal axes with whole numbers only."""
_LETTERS_OF_A_LINE = 150
"""Above the plots, which are 13 inches wide."""
_MOST_NAMES = 12
"""Largest number of actions whose names are written below their bars."""
_MOST_ACTIONS = 6
"""Largest number of dimensions of an action that are drawn."""
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}}img{{width:100%}}
pre{{overflow-x:auto}}</style>
<h1>{title}</h1>
{complaints}
<img alt="Returns, lengths, rewards, actions and coverage" src="data:image/png;base64,{picture}">
<pre>{note}</pre>
</html>
"""


def plot_dataset(dataset: Dataset, sample: DatasetSample, output: Path, note: str = "") -> Path:
    """Draw a data set into a PNG file, or a self-contained HTML page.

    Args:
        dataset: whose metadata are shown.
        sample: the sample of the data set that is drawn.
        output: the file, which ends in .png or .html.
        note: text for the page.

    Raises:
        ValueError: the file has another suffix.
    """
    refuse_other_suffix(output)
    complaints = data_warnings(sample, dataset.about.action_space, action_names_of(dataset.about))
    figure = _figure(dataset, sample, complaints if output.suffix == ".png" else [])
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    content = picture.getvalue()
    if output.suffix == ".html":
        listed = "".join(f"<li>{html.escape(one)}</li>" for one in complaints)
        content = _PAGE.format(
            title=html.escape(_title(dataset, sample)),
            complaints=f"<p>Warnings:</p><ul>{listed}</ul>" if listed else "<p>No warnings.</p>",
            picture=base64.b64encode(content).decode(),
            note=html.escape(note),
        ).encode()
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        file.write(content)
    return output


def refuse_other_suffix(output: Path) -> None:
    """Raise an error for an output that is neither .png nor .html.

    Raises:
        ValueError: it is neither.
    """
    if output.suffix not in SUFFIXES:
        raise ValueError(f"the output must end in {' or '.join(SUFFIXES)}, got {str(output)!r}")


def _title(dataset: Dataset, sample: DatasetSample) -> str:
    name = dataset.about.dataset_id or dataset.path.name
    return f"{name}: {len(sample.returns):,} episodes, {int(sample.lengths.sum()):,} transitions"


def _figure(dataset: Dataset, sample: DatasetSample, complaints: Sequence[str]) -> "Figure":
    # Slow to import. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic([["returns", "order", "lengths"], ["actions", "coverage", "rewards"]])
    _draw_returns(axes["returns"], sample, references_of(dataset.about))
    _draw_order(axes["order"], sample)
    _draw_lengths(axes["lengths"], sample)
    _draw_actions(axes["actions"], sample.actions, dataset.about.action_space, action_names_of(dataset.about))
    _draw_coverage(axes["coverage"], figure, sample)
    axes["rewards"].hist(_finite(sample.rewards), bins=_bins(sample.rewards), color=style_for(0).color)
    _style_axes(axes["rewards"], "Rewards of steps", "reward", "steps")
    axes["rewards"].set_yscale("log")
    # On a logarithmic axis from 1, a bar of one would have no height.
    axes["rewards"].set_ylim(bottom=0.5)
    said = [line for complaint in complaints for line in textwrap.wrap(complaint, _LETTERS_OF_A_LINE)]
    figure.suptitle(in_figure("\n".join([_title(dataset, sample), *said])), fontsize="medium")
    return figure


def _draw_returns(axes: "Axes", sample: DatasetSample, references: tuple[float, float] | None) -> None:
    returns = _finite(sample.returns)
    axes.hist(returns, bins=_bins(returns), color=style_for(0).color)
    for value, name, number in zip(references or (), ("score 0", "score 1"), (1, 2), strict=False):
        axes.axvline(value, color=style_for(number).color, linestyle="--", label=f"{name}: {value:,.5g}")
    if references is not None:
        axes.legend(fontsize="small")
    mean = f", mean {returns.mean():,.4g}" if len(returns) else ""
    _style_axes(axes, f"Returns of episodes{mean}", "return", "episodes")


def _draw_order(axes: "Axes", sample: DatasetSample) -> None:
    axes.plot(np.arange(len(sample.returns)), sample.returns, ".", markersize=3, color=style_for(0).color)
    _style_axes(axes, "Returns in the order of the data", "episode", "return")


def _draw_lengths(axes: "Axes", sample: DatasetSample) -> None:
    running = ~sample.terminated & ~sample.truncated
    kinds = {
        "terminated": sample.terminated,
        "truncated": sample.truncated & ~sample.terminated,
        "running": running,
    }
    shown = {name: sample.lengths[which] for name, which in kinds.items() if which.any()}
    colors = [style_for(number).color for number, name in enumerate(kinds) if name in shown]
    labels = [f"{name}: {len(lengths):,}" for name, lengths in shown.items()]
    axes.hist(list(shown.values()), bins=_bins(sample.lengths), stacked=True, color=colors, label=labels)
    axes.legend(fontsize="small")
    _style_axes(axes, "Lengths of episodes", "steps", "episodes")


def _draw_actions(axes: "Axes", actions: Array, space: Mapping[str, Any] | None, names: Sequence[str]) -> None:
    flat = actions.reshape(len(actions), -1)
    if flat.dtype.kind in "iub" and flat.shape[1] == 1:
        taken = flat[:, 0].astype(np.int64)
        # Numbers below 0 and beyond the space are none of it, and drawn all the same.
        least = min(0, int(taken.min()))
        of_space = int(space["n"]) if space is not None and space["type"] == "Discrete" else 0
        count = max(of_space, int(taken.max()) + 1) - least
        shares = np.bincount(taken - least, minlength=count) / len(flat)
        axes.bar(np.arange(count) + least, shares, color=style_for(0).color)
        _style_axes(axes, "Actions", "action", "share of steps")
        if len(names) == count <= _MOST_NAMES:
            axes.set_xticks(np.arange(count), [in_figure(name) for name in names], rotation=30, ha="right")
        else:
            axes.set_xticks(np.arange(0, count, max(1, count // _MOST_BINS)) + least)
        return
    for number in range(min(flat.shape[1], _MOST_ACTIONS)):
        color = style_for(number).color
        axes.hist(_finite(flat[:, number]), bins=_bins(flat), histtype="step", color=color, label=str(number))
    if flat.shape[1] > 1:
        axes.legend(fontsize="small", ncols=2)
    more = f", the first {_MOST_ACTIONS} of {flat.shape[1]} dimensions" if flat.shape[1] > _MOST_ACTIONS else ""
    _style_axes(axes, f"Actions{more}", "action", "steps")


def _draw_coverage(axes: "Axes", figure: "Figure", sample: DatasetSample) -> None:
    first, second, shares = _principal(sample.observations)
    drawn = axes.hexbin(first, second, gridsize=40, bins="log", mincnt=1, cmap="viridis", linewidths=0.1)
    figure.colorbar(drawn, ax=axes, label="steps")
    _style_axes(
        axes,
        "Coverage: observations along their first two\nprincipal components",
        f"first, {shares[0]:.0%} of the variance",
        f"second, {shares[1]:.0%}",
    )


def _principal(observations: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], list[float]]:
    """Project standardised observations on two principal components; return also their shares of the variance."""
    finite = observations[np.isfinite(observations).all(1)]
    deviation = finite.std(0)
    centred = (finite - finite.mean(0))[:, deviation > 0] / deviation[deviation > 0]
    if not centred.size:
        nothing = np.zeros(len(finite))
        return nothing, nothing, [0.0, 0.0]
    covariance = centred.T @ centred / len(centred)
    variances, directions = np.linalg.eigh(covariance)
    along = centred @ directions[:, ::-1][:, :2]
    shares = [*(variances[::-1][:2] / variances.sum()).tolist(), 0.0]
    return along[:, 0], along[:, 1] if along.shape[1] > 1 else np.zeros(len(along)), shares[:2]


def _bins(values: Array) -> int:
    """Return the number of bins, which is small for few values."""
    return min(_MOST_BINS, 2 * int(np.ceil(np.sqrt(len(values)))))


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]


def _style_axes(axes: "Axes", title: str, across: str, up: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=across in _WHOLE, min_n_ticks=1))
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
