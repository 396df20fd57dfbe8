"""Learning curves as pictures: return over steps, runs of one composition together with their spread."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.logging.curves import Curve, Run, grouped, labels, mean_and_spread, read_run, title, unit
from storages.persistent.log.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = 10
_LINE_STYLES = ("-", "--", "-.", ":")
_MOST_MARKERS = 60
_MOST_LABELS_INSIDE = 5
_FAINT = 0.35


def plot_runs(run_folders: Sequence[Path], output: Path) -> Path:
    """Draw the learning curves of some runs into a PNG file.

    The evaluations make the line, the smoothed returns of training episodes a faint one behind it. Runs that differ in
    nothing but their seed make one line, their mean, within a band of one standard deviation, as far as the shortest
    of them.

    Args:
        run_folders: folders that hold ``metrics.jsonl`` (and ``config.json``, for the legend).
        output: where the picture goes, a ``.png``.

    Returns:
        ``output``.

    Raises:
        FileNotFoundError: a folder holds no metrics.
        ValueError: a run has not measured any return yet, no run was named, or ``output`` is not to be a PNG.
    """
    if not run_folders:
        raise ValueError("no run folder was named; there is nothing to plot")
    output = Path(output)
    if output.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; its name must end in .png, got {str(output)!r}")
    runs = [read_run(folder) for folder in dict.fromkeys(map(Path, run_folders))]
    figure = _figure(grouped(runs), title(runs))
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        figure.savefig(file, format="png")
    return output


def _figure(groups: Sequence[Sequence[Run]], heading: str) -> "Figure":
    # Slow to import, and not needed before a run ends. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = labels(groups)
    for number, (group, name) in enumerate(zip(groups, names, strict=True)):
        line_style = _LINE_STYLES[number // _COLORS % len(_LINE_STYLES)]
        _draw(axes, group, name if len(groups) > 1 else "", f"C{number % _COLORS}", line_style)
    _dress(axes, heading, unit([run for group in groups for run in group]))
    if len(axes.get_legend_handles_labels()[1]) > _MOST_LABELS_INSIDE:
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    else:
        axes.legend(frameon=False)
    return figure


def _draw(axes: "Axes", group: Sequence[Run], name: str, color: str, line_style: str) -> None:
    tests = [run.test for run in group if len(run.test)]
    trains = [run.train for run in group if len(run.train)]
    if not tests:
        label = _label(name, "training episodes, smoothed", len(trains))
        _draw_curves(axes, trains, label, color, line_style, marked=False)
        return
    if trains:
        mean = mean_and_spread(trains)
        # One entry of the legend for all faint lines would have no colour; a lone run's says what it is.
        label = "" if name else "training episodes, smoothed"
        for curve in [mean[0]] if mean else trains:
            axes.plot(curve.steps, curve.values, color=color, alpha=_FAINT, linewidth=1, label=label or None, zorder=2)
            label = ""
    _draw_curves(axes, tests, _label(name, "evaluation", len(tests)), color, line_style, marked=True)


def _draw_curves(
    axes: "Axes", curves: Sequence[Curve], label: str, color: str, line_style: str, *, marked: bool
) -> None:
    mean = mean_and_spread(curves)
    lines = [mean[0]] if mean else curves
    for number, line in enumerate(lines):
        # A single point is no line: it needs a marker to be seen.
        marker = "o" if len(line) == 1 or (marked and len(line) <= _MOST_MARKERS) else ""
        axes.plot(
            line.steps,
            line.values,
            color=color,
            linestyle=line_style,
            linewidth=1.8,
            marker=marker,
            markersize=4,
            label=label if number == 0 else None,
            zorder=3,
        )
    if mean and len(curves) > 1:
        (curve, spread) = mean
        low, high = curve.values - spread, curve.values + spread
        axes.fill_between(curve.steps, low, high, color=color, alpha=0.18, linewidth=0, zorder=1)


def _label(name: str, kind: str, runs: int) -> str:
    label = name or kind
    if name and kind != "evaluation":
        label += ", training"
    return f"{label} (mean ± std of {runs} runs)" if runs > 1 else label


def _dress(axes: "Axes", heading: str, steps: str) -> None:
    from matplotlib.ticker import EngFormatter, StrMethodFormatter

    axes.set_title(heading, wrap=True)
    axes.set_xlabel(steps)
    axes.set_ylabel("return per episode")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    large = max(map(abs, axes.get_ylim())) >= 10_000
    axes.yaxis.set_major_formatter(EngFormatter(sep="") if large else StrMethodFormatter("{x:,g}"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
