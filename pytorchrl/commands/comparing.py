"""Commands that draw and compare runs of several seeds."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import XAxis
from pytorchrl.logging.plots import draw_runs, refuse_other_formats
from pytorchrl.logging.run_search import read_runs

Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")]


def plot(
    runs: Runs = (Path("runs"),),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("learning_curve.png"),
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
) -> None:
    """Draw the learning curves of runs into a PNG or SVG file.

    Runs that differ in nothing but their seed make one line, with a 95% bootstrap interval; lines are named by what
    differs, and each environment has a panel.

    Args:
        runs: run folders, and folders with runs below them.
        output: the picture, which ends in .png or .svg.
        x: what the curves are drawn over.
        metric: any number that the runs logged, such as losses/loss; the returns of evaluations and training where left
            out.
        statistic: over the seeds: interquartile mean, median or mean.
    """
    refuse_other_formats(output)
    found, left_out = read_runs(runs, metric)
    for line in left_out:
        print(line)
    print(draw_runs(found, output, x=x, metric=metric, statistic=statistic))
