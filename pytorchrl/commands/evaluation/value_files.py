"""The values of a policy and of data as a picture, or as a table of numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.experiments.policies.value_from_data import ValueFromData
from pytorchrl.logging.bootstrap import Estimate
from pytorchrl.logging.pictures.plots import save_figure, save_text
from pytorchrl.logging.pictures.styles import in_figure, style_for
from pytorchrl.logging.tables.evaluation_table import csv_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_INCHES, _MARGINS_INCHES, _LINE_INCHES = 7.0, 1.4, 0.4


def write_values(found: ValueFromData, estimates: Mapping[str, Estimate], title: str, output: Path) -> Path:
    """Write estimates with their intervals.

    Args:
        found: has the discount factor.
        estimates: that can be shown, by their names; the data's own value is one of them.
        title: of the picture.
        output: a picture, or a ``.csv`` file.
    """
    if output.suffix.lower() == ".csv":
        rows = [
            {"estimate": name, "value": one.value, "low": one.low, "high": one.high, "gamma": found.gamma}
            for name, one in estimates.items()
        ]
        return save_text(csv_of(rows), output)
    return save_figure(_drawn(found, estimates, title), output)


def _drawn(found: ValueFromData, estimates: Mapping[str, Estimate], title: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH_INCHES, _MARGINS_INCHES + _LINE_INCHES * len(estimates)), layout="constrained")
    axes = figure.subplots()
    for number, estimate in enumerate(estimates.values()):
        color = style_for(number).color
        axes.plot([estimate.low, estimate.high], [number, number], color=color, linewidth=3, alpha=0.5)
        axes.plot(estimate.value, number, "o", color=color)
        axes.annotate(
            f"{estimate.value:.4g}", (estimate.value, number), (0, 6), textcoords="offset points", ha="center"
        )
    left, right = axes.get_xlim()
    for place, line in ((found.behaviour.value, ":"), (0.0, "-")):
        if left <= place <= right:
            axes.axvline(place, color="#555555", linestyle=line, linewidth=1, zorder=0)
    axes.set_yticks(range(len(estimates)), [in_figure(name) for name in estimates])
    axes.set_ylim(len(estimates) - 0.5, -0.6)
    axes.set_xlabel(f"return discounted by {found.gamma:g} a step, with 95% intervals")
    axes.set_title(in_figure(title), wrap=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
