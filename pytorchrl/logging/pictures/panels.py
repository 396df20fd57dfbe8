"""Draw learning curves of groups of runs, a panel for each environment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytorchrl.logging.bands import Band, band_of
from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import NOTHING, TRAINING, Curve, Run, XAxis
from pytorchrl.logging.groups import Group, environments, title, unit
from pytorchrl.logging.pictures.figure_options import USUAL_POINTS, FigureOptions
from pytorchrl.logging.pictures.legends import Entry, Legend
from pytorchrl.logging.pictures.styles import DISTINCT_COLORS, GroupStyle, LineStyle, in_figure, style_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3
_MOST_MARKERS = 60
_GREY = "#555555"
_STATISTICS = {"iqm": "interquartile mean", "median": "median", "mean": "mean"}
_UNITS_OF_TIME = ((300.0, 1.0, "seconds"), (3 * 3600.0, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""Largest number of seconds that a unit is used for, seconds of the unit, and its name."""


@dataclass(frozen=True)
class Choice:
    """The quantity that is drawn, and its axis."""

    x: XAxis = "steps"
    metric: str | None = None
    """None for the returns of evaluations and training."""
    statistic: StatisticName = "iqm"


@dataclass(frozen=True)
class Measured:
    """The curves of a group's runs."""

    name: str
    runs: int
    look: GroupStyle
    evaluations: Sequence[Curve]
    training: Sequence[Curve]


@dataclass(frozen=True)
class Style:
    """How lines of a kind are drawn."""

    line: LineStyle
    width: float = 1.8
    alpha: float = 1.0
    has_band: bool = True
    marked: bool = False
    """Whether each point has a marker, if there are few points."""
    order: int = 3
    """Lines of a larger number cover those of a smaller one."""


_OF_EVALUATIONS = Style("-", marked=True)
_OF_TRAINING = Style("-")
"""Of a figure without evaluations."""
_OF_TRAINING_ALONE = Style("--")
"""Of a group without evaluations, where other groups have some."""
_OF_TRAINING_BESIDE = Style("--", width=1.2, alpha=0.65, has_band=False, order=2)


def draw_groups(groups: Sequence[Group], choice: Choice, options: FigureOptions | None = None) -> "Figure":
    """Draw groups of runs, whose names and order are those of the figure; its axes are those of the environments.

    Raises:
        ValueError: the runs have not measured the quantity over that axis.
    """
    options = options or FigureOptions()
    with options.texts():
        return _figure_of(groups, choice, options)


def _figure_of(groups: Sequence[Group], choice: Choice, options: FigureOptions) -> "Figure":
    # Slow to import, and not needed before a run ends. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    seconds, x_label = _time_unit(groups) if choice.x == "seconds" else (1.0, _x_label(groups, choice.x))
    panels = curves_of_groups(groups, choice, seconds)
    has_evaluations = any(measured.evaluations for panel in panels.values() for measured in panel)
    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    size = options.size or ((8.0, 4.5) if len(panels) == 1 else (4.4 * columns, 3.4 * rows))
    entries, caption = _entries(list(panels.values()), choice), _caption(list(panels.values()), choice.statistic)
    legend = Legend(entries, caption, width=size[0] / options.text_scale)
    figure = Figure(figsize=options.size or legend.size_with(*size), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    heading = title(groups) if options.title is None else options.title
    for number, (axes, (env, panel)) in enumerate(zip(grid, panels.items(), strict=False)):
        for measured in panel:
            _draw(axes, measured, panel, choice.statistic, only_training=not has_evaluations)
        _style_axes(axes, heading if len(panels) == 1 else env or "unknown environment", choice.x)
        axes.tick_params(labelsize=options.text_scale * USUAL_POINTS)
        if number + columns >= len(panels):
            axes.set_xlabel(in_figure(x_label if options.x_label is None else options.x_label))
        if number % columns == 0:
            y_label = choice.metric or "return per episode"
            axes.set_ylabel(in_figure(y_label if options.y_label is None else options.y_label))
    for axes in grid[len(panels) :]:
        axes.remove()
    if len(panels) > 1 and options.title:
        figure.suptitle(in_figure(options.title), fontsize="medium")
    legend.add_to(figure)
    return figure


def curves_of_groups(groups: Sequence[Group], choice: Choice, unit_of_x: float = 1.0) -> dict[str, list[Measured]]:
    """Return the curves of groups, by environment.

    Args:
        groups: in the order of the figure.
        choice: the quantity, and its axis.
        unit_of_x: by which positions are divided.

    Raises:
        ValueError: the runs have not measured the quantity over that axis.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(group.name for group in groups))}
    panels: dict[str, list[Measured]] = {env: [] for env in environments(groups)}
    for group in groups:
        panels[group.environment].append(_measured(group, style_for(numbers[group.name]), choice, unit_of_x))
    if not any(measured.evaluations or measured.training for panel in panels.values() for measured in panel):
        raise ValueError(f"the runs did not log {choice.x} beside what is drawn; choose another x")
    return panels


def _measured(group: Group, look: GroupStyle, choice: Choice, unit_of_x: float) -> Measured:
    curves = [_curves(run, choice) for run in group.runs]
    evaluations, training = (
        [Curve(curve.x / unit_of_x, curve.values) for curve in kind if len(curve)] for kind in zip(*curves, strict=True)
    )
    return Measured(group.name, len(group.runs), look, evaluations, training)


def _curves(run: Run, choice: Choice) -> tuple[Curve, Curve]:
    """Return the curves of evaluations and of training."""
    if choice.metric is None:
        return run.evaluations(choice.x), run.training(choice.x)
    if choice.metric.startswith("test/"):
        return run.curve(choice.metric, choice.x), NOTHING
    return NOTHING, run.smoothed(choice.metric, choice.x)


def _draw(
    axes: "Axes", measured: Measured, panel: Sequence[Measured], statistic: StatisticName, *, only_training: bool
) -> None:
    style = _style_of_training(measured, panel, only_training=only_training)
    for curves, kind in ((measured.training, style), (measured.evaluations, _OF_EVALUATIONS)):
        if curves and kind is not None:
            kind = replace(kind, has_band=kind.has_band and not _are_many(panel))
            _draw_lines(axes, curves, measured.look, kind, statistic)


def _are_many(panel: Sequence[Measured]) -> bool:
    """Whether a panel has too many groups for more than one line per group."""
    return len(panel) > DISTINCT_COLORS


def _style_of_training(measured: Measured, panel: Sequence[Measured], *, only_training: bool) -> Style | None:
    """Return the style of training curves; None where there are none, or where they would hide evaluations."""
    if not measured.training or (measured.evaluations and _are_many(panel)):
        return None
    if only_training:
        return _OF_TRAINING
    return _OF_TRAINING_BESIDE if measured.evaluations else _OF_TRAINING_ALONE


def _draw_lines(
    axes: "Axes", curves: Sequence[Curve], look: GroupStyle, style: Style, statistic: StatisticName
) -> None:
    together = band_of(curves, statistic)
    lines: Sequence[Curve | Band] = curves if together is None else [together]
    for line in lines:
        is_measured = all(len(curve) == len(line) for curve in curves) or together is None
        # A single point is no line: it needs a marker to be seen.
        every_point = len(line) == 1 or (style.marked and is_measured and len(line) <= _MOST_MARKERS)
        axes.plot(
            line.x,
            line.values,
            color=look.color,
            linestyle=style.line,
            linewidth=style.width,
            alpha=style.alpha,
            marker=look.marker if every_point or look.is_repeated else "",
            markersize=4,
            markevery=1 if every_point else max(1, len(line) // 8),
            zorder=style.order,
        )
    if isinstance(lines[0], Band) and len(curves) > 1 and style.has_band:
        band = lines[0]
        axes.fill_between(band.x, band.low, band.high, color=look.color, alpha=0.16, linewidth=0, zorder=1)


def _entries(panels: Sequence[Sequence[Measured]], choice: Choice) -> list[Entry]:
    """Return legend entries: a colour for each group, and a line style for each kind of curve."""
    by_name: dict[str, list[Measured]] = {}
    for panel in panels:
        for measured in panel:
            by_name.setdefault(measured.name, []).append(measured)
    only_training = not any(measured.evaluations for panel in panels for measured in panel)
    color = _GREY if len(by_name) > 1 else panels[0][0].look.color
    kinds = []
    if not only_training:
        kinds.append(Entry("evaluation (greedy)", color, _OF_EVALUATIONS.line, line_width=_OF_EVALUATIONS.width))
    styles = (_style_of_training(one, panel, only_training=only_training) for panel in panels for one in panel)
    if style := next(filter(None, styles), None):
        name = "training (exploring), smoothed" if choice.metric in (None, TRAINING) else "during training, smoothed"
        kinds.append(Entry(name, color, style.line, line_width=style.width))
    return kinds if len(by_name) == 1 else [*map(_entry_of_group, by_name.items()), *kinds]


def _entry_of_group(named: tuple[str, Sequence[Measured]]) -> Entry:
    """Return the entry of a group: its name, and its number of runs in each environment."""
    name, group = named
    fewest, most = (function(measured.runs for measured in group) for function in (min, max))
    count = f" ({most} runs)" if fewest == most else f" ({fewest} to {most} runs)"
    look = group[0].look
    return Entry(name + count if most > 1 else name, look.color, marker=look.marker if look.is_repeated else "")


def _caption(panels: Sequence[Sequence[Measured]], statistic: StatisticName) -> str:
    everything = [measured for panel in panels for measured in panel]
    most = max(measured.runs for measured in everything)
    if most == 1:
        return ""
    of = f"{most} runs" if len({measured.name for measured in everything}) == 1 else "the runs"
    interval = "" if all(map(_are_many, panels)) else ", with its 95% bootstrap interval"
    return f"{_STATISTICS[statistic]} of {of}{interval}"


def _time_unit(groups: Sequence[Group]) -> tuple[float, str]:
    """Return the seconds of a unit of time that gives readable numbers, and the label of the axis."""
    times = (record.get("seconds", 0.0) for group in groups for run in group.runs for record in run.records)
    longest = max(filter(math.isfinite, times), default=0.0)
    seconds, name = next((seconds, name) for most, seconds, name in _UNITS_OF_TIME if longest <= most)
    return seconds, f"{name} of training"


def _x_label(groups: Sequence[Group], x: XAxis) -> str:
    return unit(groups) if x == "steps" else "training episodes"


def _style_axes(axes: "Axes", heading: str, x: XAxis) -> None:
    from matplotlib.ticker import EngFormatter, StrMethodFormatter

    axes.set_title(in_figure(heading), wrap=True, fontsize="medium")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}") if x == "seconds" else EngFormatter(sep=""))
    large = max(map(abs, axes.get_ylim())) >= 10_000
    axes.yaxis.set_major_formatter(EngFormatter(sep="") if large else StrMethodFormatter("{x:,g}"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
