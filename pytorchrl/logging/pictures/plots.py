"""Plots of learning curves: groups of runs that differ only in their seed, a panel for each environment."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.logging.bootstrap import STATISTICS, StatisticName
from pytorchrl.logging.curves import Run, XAxis
from pytorchrl.logging.groups import grouped
from pytorchrl.logging.pictures.panels import Choice, draw_groups
from pytorchrl.logging.run_search import read_runs
from storages.persistent.log.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".svg")
_X_AXES = ("steps", "seconds", "episodes")


def plot_runs(
    paths: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
) -> Path:
    """Draw the learning curves of some runs into a PNG or SVG file.

    Evaluations, with greedy actions, are solid lines; the smoothed returns of training episodes, with exploration, are
    dashed. Runs that differ only in their seed are drawn as one line, their interquartile mean, up to the end of the
    shortest run, with its 95% bootstrap interval.

    Args:
        paths: run folders, and folders with runs below them.
        output: the picture, a ``.png`` or an ``.svg``.
        x: "steps", "seconds" of training or "episodes" of training.
        metric: any number that runs log; the returns of evaluations and of training where left out.
        statistic: over the runs of a group: "iqm", "median" or "mean".

    Returns:
        ``output``.

    Raises:
        FileNotFoundError: a path does not exist, or there is no run.
        ValueError: a run that was named has not measured what is to be drawn, or an argument is not possible, such as
            a single path instead of a list.
    """
    runs, _ = read_runs(paths, metric)
    return draw_runs(runs, Path(output), x=x, metric=metric, statistic=statistic)


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


def draw_runs(
    runs: Sequence[Run],
    output: Path,
    *,
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
) -> Path:
    """Draw runs that have been read; see :func:`plot_runs`."""
    refuse_other_formats(output)
    for name, value, values in (("x", x, _X_AXES), ("statistic", statistic, tuple(STATISTICS))):
        if value not in values:
            raise ValueError(f"plot_runs: {name} must be one of {', '.join(values)}, got {value!r}")
    return save_figure(draw_groups(grouped(runs), Choice(x, metric, statistic)), output)


def refuse_other_formats(output: Path) -> None:
    """Raise an error for a picture that is neither .png nor .svg.

    Raises:
        ValueError: it is neither.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ValueError(f"the picture is a PNG or an SVG; its name must end in .png or .svg, got {str(output)!r}")


def refuse_other_than_png(output: Path) -> None:
    """Raise an error for a picture that is no .png.

    Raises:
        ValueError: it is none.
    """
    if output.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; its name must end in .png, got {str(output)!r}")


def save_figure(figure: "Figure", output: Path) -> Path:
    """Write a figure; equal figures give identical files."""
    from matplotlib import rc_context

    refuse_other_formats(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    kind = output.suffix.lower()[1:]
    with replacing(output) as file, rc_context({"svg.hashsalt": output.name}):
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return output
