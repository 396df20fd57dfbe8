"""Draw the learning curves of many algorithms in one figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from pytorchrl.logging.bands import band_of
from pytorchrl.logging.curves import Curve

_COLORS = 10


def draw_curves(curves: Mapping[str, Sequence[Curve]], title: str, output: Path) -> None:
    """Draw the smoothed returns of training episodes into a PNG file, a line for each name.

    A line is the mean over runs, with the 95% bootstrap interval.

    Args:
        curves: one for each run, by the name in the legend; names without curves are left out.
        title: of the figure.
        output: the file.
    """
    figure = Figure(figsize=(10, 5.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, of_runs) in enumerate(curves.items()):
        measured = [curve for curve in of_runs if len(curve)]
        band = band_of(measured, "mean") if measured else None
        if band is None:
            continue
        color, style = f"C{number % _COLORS}", "-" if number < _COLORS else "--"
        axes.plot(band.x, band.values, style, color=color, linewidth=1.8, label=f"{name} ({len(measured)})")
        if len(measured) > 1:
            axes.fill_between(band.x, band.low, band.high, color=color, alpha=0.1, linewidth=0)
    axes.set_title(title)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return per episode, smoothed")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small", title="algorithm (runs)")
    figure.savefig(output, format="png")
