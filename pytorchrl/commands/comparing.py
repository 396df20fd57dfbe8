"""Commands that draw and compare runs of several seeds."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.comparison import compare_groups, draw_comparison, draw_profile
from pytorchrl.comparison.latex import as_latex
from pytorchrl.comparison.scores import ScoreName
from pytorchrl.comparison.tables import as_csv, as_markdown, print_table, tables_of
from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import XAxis
from pytorchrl.logging.groups import grouped
from pytorchrl.logging.pictures.curve_styles import Choice
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.plots import PICTURES, draw_runs, refuse_other_formats, save_text
from pytorchrl.logging.run_search import read_runs
from pytorchrl.terminal import tell

Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")]
Look = Annotated[FigureOptions, tyro.conf.arg(name="")]
_USUAL = FigureOptions()
_WRITERS = {
    ".md": as_markdown,
    ".tex": as_latex,
    ".csv": lambda comparison, _: as_csv(comparison),
}


def plot(
    runs: Runs = (Path("runs"),),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("learning_curve.png"),
    x: XAxis = "steps",
    metric: str | None = None,
    statistic: StatisticName = "iqm",
    look: Look = _USUAL,
) -> None:
    """Draw the learning curves of runs into a PNG, SVG or PDF file, or write their numbers to a CSV file.

    Runs that differ in nothing but their seed make one line, with a 95% bootstrap interval; lines are named by what
    differs, and each environment has a panel.

    Args:
        runs: run folders, and folders with runs below them.
        output: the file, which ends in .png, .svg, .pdf or .csv.
        x: the horizontal axis of the curves.
        metric: any number that the runs logged, such as losses/loss; the returns of evaluations and training where left
            out.
        statistic: over the seeds: interquartile mean, median or mean.
        look: size, fonts, labels, legend, names and order.
    """
    refuse_other_formats(output)
    found, left_out = read_runs(runs, metric)
    for line in left_out:
        tell(line)
    tell(draw_runs(grouped(found), output, Choice(x, metric, statistic), look))


def compare(
    runs: Runs = (Path("runs"),),
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    baseline: str | None = None,
    metric: str | None = None,
    score: ScoreName = "final",
    at_steps: int | None = None,
    reference: tyro.conf.UseAppendAction[tuple[tuple[str, float, float], ...]] = (),
    picture: Path | None = None,
    profile: Path | None = None,
    columns: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")] = (),
    look: Look = _USUAL,
) -> None:
    """Compare runs of several seeds: interquartile means with 95% bootstrap intervals, probabilities of improvement.

    Runs that differ in nothing but their seed are a group, which is named by what differs. Final, last ten and best
    returns are shown, and how many more seeds a conclusion needs.

    Args:
        runs: run folders, and folders with runs below them.
        output: a file for the tables, which ends in .md, .tex or .csv, or for intervals and probabilities, which ends
            in .png, .svg or .pdf; the terminal has the tables too.
        baseline: the name of the group that the others are compared with, as in the tables; the first where left
            out.
        metric: a number that the runs logged, of which more is better; the returns of evaluations where left out.
        score: the score of a run, its final measurement or the mean of its last ten.
        at_steps: ignore what was measured after more steps than these.
        reference: an environment, and the returns in it that are normalised to 0 and to 1, where there are several
            environments; known ones, or the smallest and largest return of the runs, where left out.
        picture: a .png, .svg or .pdf for intervals and probabilities, or a .csv for their numbers.
        profile: a .png, .svg or .pdf for performance profiles, or a .csv for their numbers.
        columns: the columns of the tables beside the names of groups, by their headings and in this order, such as
            seeds "final IQM" "95% interval" probability; all where left out. A .csv has all numbers.
        look: size, fonts, labels and legend of figures, and names and order of groups in figures and tables.
    """
    for file in filter(None, (picture, profile)):
        refuse_other_formats(file)
    if output is not None and output.suffix not in (*_WRITERS, *PICTURES):
        raise ValueError(
            f"a comparison is written to a file that ends in {', '.join((*_WRITERS, *PICTURES))}, got {output}"
        )
    found, left_out = read_runs(runs, metric)
    comparison = compare_groups(
        look.arranged(grouped(found)),
        baseline=None if baseline is None else look.names.get(baseline, baseline),
        metric=metric,
        score=score,
        at_steps=at_steps,
        references={env: (low, high) for env, low, high in reference},
        left_out=left_out,
    )
    for table in tables_of(comparison, columns):
        print_table(table)
    tell(comparison.answer)
    for note in comparison.notes:
        tell(f"- {note}")
    # The groups have the names and the order of the figures by now.
    drawn = {result.name for result in comparison.main}
    look = replace(look, names={name: name for name in look.names.values() if name in drawn}, order=())
    if output is not None and output.suffix in _WRITERS:
        tell(f"Tables: {save_text(_WRITERS[output.suffix](comparison, columns), output)}")
    elif output is not None:
        tell(f"Intervals: {draw_comparison(comparison, output, look)}")
    if picture is not None:
        tell(f"Intervals: {draw_comparison(comparison, picture, look)}")
    if profile is not None:
        tell(f"Profiles: {draw_profile(comparison, profile, look)}")
