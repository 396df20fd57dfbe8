"""Draw learning curves of groups of runs, a panel for each environment."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytorchrl.logging.bands import Band, band_of
from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import NOTHING, Curve, Run, XAxis
from pytorchrl.logging.groups import Group, environments, shown_environment, title, unit
from pytorchrl.logging.pictures.curve_styles import (
    OF_EVALUATIONS,
    Choice,
    Measured,
    Style,
    are_many,
    style_of_training,
)
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.label_fitting import fit_labels, points_of
from pytorchrl.logging.pictures.legend_texts import LegendTexts
from pytorchrl.logging.pictures.legends import Legend
from pytorchrl.logging.pictures.styles import GroupStyle, in_figure, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3
_MOST_MARKERS = 60
_UNITS_OF_TIME = ((300.0, 1.0, "seconds"), (3 * 3600.0, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""Largest number of seconds that a unit is used for, seconds of the unit, and its name."""


def draw_groups(groups: Sequence[Group], choice: Choice, options: FigureOptions | None = None) -> "Figure":
    """Draw groups of runs, whose names and order are those of the figure; its axes are those of the environments.

    Raises:
        ValueError: the runs have not measured the quantity over that axis.
    """
    options = options or FigureOptions()
    with options.applied():
        return _figure_of(groups, choice, options)


def draw_into(
    axes: "Mapping[str, Axes]", groups: Sequence[Group], choice: Choice, options: FigureOptions | None = None
) -> None:
    """Draw groups of runs into the axes of a user's figure, whose other axes and layout stay as they are.

    Args:
        axes: of each environment.
        groups: in the order and with the names of the figure.
        choice: the quantity, and its axis.
        options: labels, legend and sizes of texts; only a legend inside the axes is drawn.

    Raises:
        ValueError: the runs have not measured the quantity over that axis.
    """
    options = options or FigureOptions()
    with options.applied():
        seconds, x_label = _time_unit(groups) if choice.x == "seconds" else (1.0, _x_label(groups, choice.x))
        panels = curves_of_groups(groups, choice, seconds)
        texts = LegendTexts(list(panels.values()), choice, options)
        for env, panel in panels.items():
            _draw_panel(axes[env], panel, choice, texts)
            _style_axes(axes[env], _heading(groups, env, options), choice.x)
            _label(axes[env], options, x_label, choice.metric or "return per episode")
            if options.legend_place == "inside":
                Legend(texts.entries(), texts.caption(), options).add_to_axes(axes[env])


def _heading(groups: Sequence[Group], env: str, options: FigureOptions) -> str:
    """Return the title of the panel of an environment."""
    if len(environments(groups)) > 1:
        return shown_environment(env) or "unknown environment"
    return title(groups) if options.title is None else options.title


def _figure_of(groups: Sequence[Group], choice: Choice, options: FigureOptions) -> "Figure":
    # Slow to import, and not needed before a run ends. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    seconds, x_label = _time_unit(groups) if choice.x == "seconds" else (1.0, _x_label(groups, choice.x))
    panels = curves_of_groups(groups, choice, seconds)
    columns = min(_MOST_COLUMNS, math.ceil(math.sqrt(len(panels))))
    rows = math.ceil(len(panels) / columns)
    size = options.size or ((8.0, 4.5) if len(panels) == 1 else (4.4 * columns, 3.4 * rows))
    texts = LegendTexts(list(panels.values()), choice, options)
    legend = Legend(texts.entries(), texts.caption(), options)
    figure = Figure(figsize=options.size or legend.size_with(*size), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for number, (axes, (env, panel)) in enumerate(zip(grid, panels.items(), strict=False)):
        _draw_panel(axes, panel, choice, texts)
        _style_axes(axes, _heading(groups, env, options), choice.x)
        is_lowest, is_first = number + columns >= len(panels), number % columns == 0
        y_label = choice.metric or "return per episode"
        _label(axes, options, x_label if is_lowest else None, y_label if is_first else None)
    for axes in grid[len(panels) :]:
        axes.remove()
    if len(panels) > 1 and options.title:
        figure.suptitle(in_figure(options.title))
    legend.add_to(figure)
    if options.size is not None or options.font_size is not None:
        fit_labels(figure)
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
        panels[group.environment].append(
            _measured(group, style_of(group.name, numbers[group.name], choice.colors), choice, unit_of_x)
        )
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
        evaluations = run.evaluations(choice.x)
        has_none = len(evaluations) and not choice.training
        return evaluations, NOTHING if has_none else run.training(choice.x, choice.smoothed_share)
    if choice.metric.startswith("test/"):
        return run.curve(choice.metric, choice.x), NOTHING
    return NOTHING, run.smoothed(choice.metric, choice.x, choice.smoothed_share)


def _label(axes: "Axes", options: FigureOptions, x_label: str | None, y_label: str | None) -> None:
    """Label the axes that are not None, with the texts of the options where these have some."""
    size = points_of("axes.labelsize")
    if x_label is not None:
        axes.set_xlabel(in_figure(x_label if options.x_label is None else options.x_label), fontsize=size)
    if y_label is not None:
        axes.set_ylabel(in_figure(y_label if options.y_label is None else options.y_label), fontsize=size)


def _draw_panel(axes: "Axes", panel: Sequence[Measured], choice: Choice, texts: LegendTexts) -> None:
    for measured in panel:
        _draw(axes, measured, panel, choice.statistic, texts)


def _draw(
    axes: "Axes", measured: Measured, panel: Sequence[Measured], statistic: StatisticName, texts: LegendTexts
) -> None:
    training = style_of_training(measured, panel, only_training=texts.only_training)
    for curves, kind in ((measured.training, training), (measured.evaluations, OF_EVALUATIONS)):
        if curves and kind is not None:
            kind = replace(kind, has_band=kind.has_band and not are_many(panel))
            _draw_lines(axes, curves, measured.look, kind, statistic, texts.label_of(measured, kind))


def _draw_lines(
    axes: "Axes", curves: Sequence[Curve], look: GroupStyle, style: Style, statistic: StatisticName, label: str
) -> None:
    from matplotlib import rcParams

    together = band_of(curves, statistic)
    lines: Sequence[Curve | Band] = curves if together is None else [together]
    for number, line in enumerate(lines):
        is_measured = all(len(curve) == len(line) for curve in curves) or together is None
        # A single point is no line: it needs a marker to be seen.
        every_point = len(line) == 1 or (style.marked and is_measured and len(line) <= _MOST_MARKERS)
        axes.plot(
            line.x,
            line.values,
            color=look.color,
            linestyle=style.line,
            linewidth=style.width * rcParams["lines.linewidth"],
            alpha=style.alpha,
            marker=look.marker if every_point or look.is_repeated else "",
            markevery=1 if every_point else max(1, len(line) // 8),
            zorder=style.order,
            # A second legend, of the axes, names each group once, as matplotlib leaves out an underscore.
            label=in_figure(label) if label and number == 0 else "_nolegend_",
        )
    if isinstance(lines[0], Band) and len(curves) > 1 and style.has_band:
        band = lines[0]
        axes.fill_between(band.x, band.low, band.high, color=look.color, alpha=0.16, linewidth=0, zorder=1)


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

    axes.set_title(in_figure(heading), wrap=True)
    # Ticks are made when they are drawn, when matplotlib's parameters may be others.
    for name in ("xtick", "ytick"):
        axes.tick_params(axis=name[0], labelsize=points_of(f"{name}.labelsize"))  # type: ignore[arg-type]
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}") if x == "seconds" else EngFormatter(sep=""))
    large = max(map(abs, axes.get_ylim())) >= 10_000
    axes.yaxis.set_major_formatter(EngFormatter(sep="") if large else StrMethodFormatter("{x:,g}"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
