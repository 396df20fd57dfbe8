"""Plots of learning curves: groups of runs that differ only in their seed, a panel for each environment."""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytorchrl.logging.bootstrap import STATISTICS, StatisticName
from pytorchrl.logging.curves import XAxis
from pytorchrl.logging.groups import Group, environments
from pytorchrl.logging.pictures.curve_styles import Choice
from pytorchrl.logging.pictures.curve_table import curves_as_csv
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.own_axes import OF_FILES, TO_DRAW_INTO, axes_of_environments
from pytorchrl.logging.pictures.panels import draw_groups, draw_into
from pytorchrl.logging.run_search import read_groups
from storages.component.other_names import naming_arguments
from storages.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
_FORMATS = (*PICTURES, ".csv")
Paths: TypeAlias = Iterable[str | os.PathLike[str]]
_X_AXES = ("steps", "seconds", "episodes")


@naming_arguments({**OF_FILES, "ax": {"": "prl.curve_axes(runs, axes=axes)"}})
def plot_runs(
    paths: Paths | Mapping[str, Paths],
    output: str | os.PathLike[str],
    *,
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
    options: FigureOptions | None = None,
) -> Path:
    """Draw the learning curves of some runs into a file: PNG, SVG or PDF, or the numbers as CSV.

    Evaluations, with greedy actions, are solid lines; the smoothed returns of training episodes, with exploration, are
    dashed. Runs that differ only in their seed are drawn as one line, their interquartile mean, up to the end of the
    shortest run, with its 95% bootstrap interval. :func:`curve_axes` returns the axes instead.

    Args:
        paths: run folders, and folders with runs below them, which are grouped where they differ only in their seed; or
            such lists by names of your own.
        output: the file, which ends in ``.png``, ``.svg``, ``.pdf`` or ``.csv``.
        x: "steps", "seconds" of training or "episodes" of training.
        metric: any number that runs log; the returns of evaluations and of training where left out.
        statistic: over the runs of a group: "iqm", "median" or "mean".
        options: size, fonts, labels, legend, names and order.

    Returns:
        ``output``.

    Raises:
        FileNotFoundError: a path does not exist, or there is no run.
        ValueError: a run that was named has not measured what is to be drawn, or an argument is not possible, such as
            a single path instead of a list.
    """
    groups, _ = read_groups(paths, metric)
    return draw_runs(groups, Path(output), Choice(x, metric, statistic), options)


@naming_arguments(TO_DRAW_INTO)
def curve_axes(
    paths: Paths | Mapping[str, Paths],
    *,
    axes: "Axes | Mapping[str, Axes] | None" = None,
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
    options: FigureOptions | None = None,
) -> dict[str, "Axes"]:
    """Draw the learning curves of some runs, and return matplotlib's axes to go on with.

    The lines have the labels of the legend, which belongs to the figure: ``legend_place="none"`` leaves it out, and
    ``axes.legend()`` makes one of your own.

    Args:
        paths: as for :func:`plot_runs`, like ``x`` and those that follow it.
        axes: matplotlib's axes to draw into, such as those of a subplot, or such axes by environment; None makes a
            figure. No legend is drawn then, unless its place is "inside": the lines have labels.
        x: the axis.
        metric: what is drawn.
        statistic: over the runs of a group.
        options: size, fonts, labels, legend, names and order.

    Returns:
        The axes of each environment by its id; their ``figure`` is matplotlib's as well.

    Raises:
        FileNotFoundError: a path does not exist, or there is no run.
        TypeError: ``axes`` are none.
        ValueError: as :func:`plot_runs`, or there are no axes of an environment, or ``options`` give a size beside
            axes.
    """
    choice = Choice(x, metric, statistic)
    groups, _ = read_groups(paths, metric)
    groups, choice = _arranged(groups, choice, options)
    if axes is None:
        return dict(zip(environments(groups), draw_groups(groups, choice, options).axes, strict=True))
    given = axes_of_environments(axes, environments(groups), options)
    draw_into(given, groups, choice, options)
    return given


def draw_curve(run: Path, output: Path, metrics: Iterable[str]) -> None:
    """Draw the learning curve of one run, unless it has measured no return; warn where it cannot be written."""
    # A short run may have ended no episode.
    if {"train/return", "test/return"}.intersection(metrics):
        with warn_if_unwritten(output):
            plot_runs([run], output)


@contextmanager
def warn_if_unwritten(output: Path) -> Iterator[None]:
    """Warn where a picture cannot be written, instead of ending what the picture is a by-product of."""
    try:
        yield
    except OSError as error:
        warnings.warn(
            f"the picture {output} cannot be written: {error.strerror or error}", RuntimeWarning, stacklevel=3
        )


def draw_runs(groups: Sequence[Group], output: Path, choice: Choice, options: FigureOptions | None = None) -> Path:
    """Draw groups of runs that have been read; see :func:`plot_runs`."""
    refuse_other_formats(output)
    groups, choice = _arranged(groups, choice, options)
    if output.suffix.lower() == ".csv":
        return save_text(curves_as_csv(groups, choice), output)
    return save_figure(draw_groups(groups, choice, options), output, None if options is None else options.dpi)


def _arranged(groups: Sequence[Group], choice: Choice, options: FigureOptions | None) -> tuple[list[Group], Choice]:
    """Return groups in the order and with the names of the figure, and the choice, which is checked."""
    for name, value, values in (("x", choice.x, _X_AXES), ("statistic", choice.statistic, tuple(STATISTICS))):
        if value not in values:
            raise ValueError(f"plot_runs: {name} must be one of {', '.join(values)}, got {value!r}")
    if not groups:
        raise ValueError(
            "plot_runs: there is no group of runs; give a list of runs, or lists by name: {'mine': ['runs']}"
        )
    options = options or FigureOptions()
    shown = choice.training and options.training
    return options.arranged(groups), replace(choice, training=shown, smooth=options.smooth, colors=options.colors)


def refuse_other_formats(output: Path) -> None:
    """Raise an error for a figure that is neither .png, .svg, .pdf nor .csv.

    Raises:
        ValueError: it is none of them.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ValueError(
            f"a figure is a picture, or its numbers; its name must end in {', '.join(PICTURES)} or .csv, got "
            f"{str(output)!r}"
        )


def refuse_other_than_png(output: Path) -> None:
    """Raise an error for a picture that is no .png.

    Raises:
        ValueError: it is none.
    """
    if output.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; its name must end in .png, got {str(output)!r}")


def save_figure(figure: "Figure", output: Path, dpi: float | None = None) -> Path:
    """Write a figure as a picture, of a number of pixels per inch; equal figures give identical files."""
    from matplotlib import rc_context

    output.parent.mkdir(parents=True, exist_ok=True)
    kind = output.suffix.lower()[1:]
    # Journals refuse fonts of type 3, matplotlib's default.
    fonts = rc_context({"svg.hashsalt": output.name, "pdf.fonttype": 42})
    without_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with replacing(output) as file, fonts:
        figure.savefig(file, format=kind, dpi=dpi, metadata=without_date.get(kind, {}))
    return output


def save_text(text: str, output: Path) -> Path:
    """Write the numbers of a figure."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        # A name may hold bytes that are no text.
        file.write(text.encode(errors="backslashreplace"))
    return output
