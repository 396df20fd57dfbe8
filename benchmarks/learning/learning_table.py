"""Make the pages that compare returns of algorithms: make missing runs, and write tables of finished ones."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.learning import atari_100k_table
from benchmarks.learning.example_runs import ROOT
from benchmarks.learning.learning_runs import FINAL_PART, PAGES, Result, Run, results_of, returns_of
from benchmarks.learning.learning_task import Page, Task
from benchmarks.shared.page_texts import paragraphs, standard_error
from pytorchrl.logging.bands import band_of
from pytorchrl.logging.bootstrap import estimate
from pytorchrl.logging.curves import Curve
from pytorchrl.logging.curves import Run as Measured

Sections: TypeAlias = Callable[[Mapping[str, Sequence[Run]], Path], list[str]]
_OWN_SECTIONS: Mapping[str, tuple[str, Sections]] = {"atari-100k": (atari_100k_table.HOW, atari_100k_table.sections)}
"""How runs are measured, in words, and the sections, of pages that have others than one for each task."""


@dataclass
class Arguments:
    """What to run."""

    algorithms: tuple[str, ...] = ()
    """Algorithms to run, as the tables name them; all where left out."""
    seeds: tuple[int, ...] = ()
    """Seeds to run, which need not be the task's; those of each task where left out."""
    target_steps: int | None = None
    """Environment steps instead of each task's own number, to try the script."""
    processes: int = 2
    """Runs at a time, each on one thread; 0 runs nothing and writes the page."""
    docs: Path = ROOT / "docs"
    """Where the page and the curves go."""
    runs: Path | None = None
    """Where the run folders go; a folder of the page's name under runs/ where left out."""
    kept: Path = ROOT / "benchmarks" / "learning" / "finished"
    """Where results of finished runs are kept as small files, without the run folders; to repeat a run, delete its file
    there, too."""


def make_page(name: str, only: Sequence[str], arguments: Arguments) -> None:
    """Run what has not finished, then write the tables and draw the curves.

    Args:
        name: of the page, in ``PAGES``.
        only: names of the tasks to run.
        arguments: what else to run, and where.
    """
    page = PAGES[name]
    folder = arguments.runs or Path("runs") / page.target
    by_task = {
        task: runs_of(name, task, folder, arguments.target_steps, arguments.kept, arguments.seeds)
        for task in page.tasks
    }
    wanted = [
        run
        for task in only
        for run in by_task[task]
        if (not arguments.algorithms or run.algorithm in arguments.algorithms)
        and (run.seed in arguments.seeds if arguments.seeds else run.is_of_the_task)
    ]
    left = [run for run in wanted if run.result is None]
    print(f"{len(wanted)} runs, {len(wanted) - len(left)} of them finished", flush=True)
    for run in left:
        if run.missing_package is not None:
            print(f"{run.name} is left out: the package {run.missing_package} is not installed", flush=True)
    left = [run for run in left if run.missing_package is None]
    stopped = arguments.processes > 0 and _make(left, arguments.processes)
    file = arguments.docs / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    for run in (run for runs in by_task.values() for run in runs):
        run.keep()
    shown = {task: [run for run in runs if run.is_of_the_task or run.result] for task, runs in by_task.items()}
    file.write_text(f"{_page(name, shown, arguments.docs)}\n", encoding="utf-8")
    print(f"Tables and curves: {file}")
    print(f"Run folders:       {folder}")
    failed = [run.name for run in left if run.result is None]
    if stopped:
        print("Stopped; the same command goes on from here")
    elif arguments.processes and failed:
        raise SystemExit(f"{len(failed)} runs failed: {'; '.join(failed)}")


def _make(runs: Sequence[Run], processes: int) -> bool:
    """Make runs, and print the result of each; return whether they were stopped."""
    begun = time.monotonic()
    try:
        for done, run in enumerate(results_of(runs, processes), start=1):
            minutes = (time.monotonic() - begun) / 60
            print(f"{done} of {len(runs)} in {minutes:.0f} min: {run.name}: {_outcome(run)}", flush=True)
    except KeyboardInterrupt:
        return True
    return False


def runs_of(
    page: str,
    task_name: str,
    folder: Path,
    target_steps: int | None = None,
    kept: Path | None = None,
    seeds: Sequence[int] = (),
) -> list[Run]:
    """Return all runs of a task, seed by seed, so that each algorithm has one before any has two.

    The seeds are the task's own, the given ones, and those of all results that were kept.

    Args:
        page: name of the page.
        task_name: name of one of its tasks.
        folder: that holds the run folders.
        target_steps: environment steps instead of the task's own number.
        kept: folder of the files of finished runs; the one of the run folders where left out.
        seeds: further seeds beside the task's own.
    """
    task = PAGES[page].tasks[task_name]
    # Runs of another length have another name, and are not taken for those of the task's own number of steps.
    prefix = task_name if target_steps is None else f"{task_name}-{target_steps}-steps"
    steps = target_steps or task.target_steps
    kept_folder = (kept or folder) / page
    kept_seeds = {int(file.stem.rpartition("-")[2]) for file in kept_folder.glob(f"{prefix}-*.json")}
    runs = []
    for seed in [*task.seeds, *sorted({*seeds, *kept_seeds} - {*task.seeds})]:
        for algorithm in task.algorithms:
            own = f"{prefix}-{algorithm.replace(' ', '-')}-{seed}"
            kept_file = kept_folder / f"{own}.json"
            runs.append(Run(page, task_name, algorithm, seed, steps, folder / own, kept_file))
    return runs


def _outcome(run: Run) -> str:
    if run.result is None:
        return "failed"
    return f"{run.result.greedy_return:.1f}, in training {_shown(run.result.training_return)}"


def _page(name: str, by_task: dict[str, list[Run]], docs: Path) -> str:
    page = PAGES[name]
    tasks = {
        task_name: task
        for task_name, task in page.tasks.items()
        if not task.on_request or any(run.result is not None for run in by_task[task_name])
    }
    by_task = {task_name: by_task[task_name] for task_name in tasks}
    all_runs = [run for runs in by_task.values() for run in runs]
    how, sections = _OWN_SECTIONS.get(name) or (_how(page, all_runs), None)
    lines = [
        f"# {page.title}",
        "",
        f"Written by `benchmarks/learning/learning_page.py`; `make {page.target}` makes the runs that are missing and "
        "writes it again.",
        "",
        *([*paragraphs(page.about), ""] if page.about else []),
        *paragraphs(f"{how} {_finished(all_runs)}"),
        "",
        *([] if page.baseline is None else _over_all_tasks(page, page.baseline, by_task)),
    ]
    if sections is not None:
        return "\n".join([*lines, *sections(by_task, docs)][:-1])
    for task_name, task in tasks.items():
        by_algorithm: dict[str, list[Run]] = {algorithm: [] for algorithm in task.algorithms}
        for run in by_task[task_name]:
            by_algorithm[run.algorithm].append(run)
        steps = by_task[task_name][0].target_steps
        what = f"{steps:,} environment steps, {task.episodes} episodes of the greedy policy. {task.settings}"
        lines += [f"## {task.title}", "", *paragraphs(what), "", *_table(task, by_algorithm), ""]
        curves = {
            algorithm: [Measured(run.folder, {}, run.records).training() for run in runs if run.result is not None]
            for algorithm, runs in by_algorithm.items()
        }
        if any(curves.values()):
            picture = docs / f"{name}-{task_name}.png"
            draw_curves(curves, f"{task.env}, training episodes", picture)
            lines += [f"![Return of training episodes over environment steps]({picture.name})", ""]
    return "\n".join(lines[:-1])


def _over_all_tasks(page: Page, baseline: str, by_task: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the section that compares all compositions over the tasks for which all runs of the baseline are there."""
    of_baseline = {task: returns_of(runs, baseline) for task, runs in by_task.items()}
    complete = [task for task, runs in of_baseline.items() if len(runs) >= len(page.tasks[task].seeds)]
    lines = [
        "## All tasks",
        "",
        *paragraphs(
            f"Greedy returns, divided by the mean of `{baseline}` in the same task: interquartile means over runs and "
            "tasks, with 95% intervals of a bootstrap that draws runs within each task (Agarwal et al., "
            "arXiv 2108.13264). Tasks count where all seeds of both have finished."
        ),
        "",
    ]
    rows = [["strategy", "interquartile mean", "95% interval", "tasks"], ["---", "---:", "---:", "---"]]
    for algorithm in dict.fromkeys(name for task in page.tasks.values() for name in task.algorithms):
        scores = {
            task: np.asarray(found) / np.mean(of_baseline[task])
            for task in complete
            if len(found := returns_of(by_task[task], algorithm)) >= len(page.tasks[task].seeds)
        }
        if scores:
            over_all = estimate([*scores.values()])
            interval = f"{over_all.low:.2f} to {over_all.high:.2f}"
            rows.append([f"`{algorithm}`", f"{over_all.value:.2f}", interval, ", ".join(scores)])
        else:
            rows.append([f"`{algorithm}`", "-", "-", "missing"])
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _table(task: Task, by_algorithm: dict[str, list[Run]]) -> list[str]:
    thresholds = {algorithm: task.threshold_of(algorithm) for algorithm in by_algorithm}
    summary = "mean ± its standard error" if task.summary == "interval" else task.summary
    has_further = any(run.seed not in task.seeds for runs in by_algorithm.values() for run in runs)
    header = ["algorithm", *(f"seed {seed}" for seed in task.seeds), *["further seeds"] * has_further]
    header += [summary, "in training", "steps/s"]
    if any(threshold is not None for threshold in thresholds.values()):
        header += ["threshold", "reached"]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    for algorithm, runs in by_algorithm.items():
        found = {run.seed: run.result for run in runs if run.result is not None}
        returns = [_shown(found[seed].greedy_return) if seed in found else "missing" for seed in task.seeds]
        if has_further:
            further = [seed for seed in found if seed not in task.seeds]
            returns.append("; ".join(f"{seed}: {_shown(found[seed].greedy_return)}" for seed in further) or "-")
        is_complete = found.keys() >= {*task.seeds}
        summaries = _summaries(task, list(found.values()), is_complete, thresholds[algorithm])
        rows.append([f"`{algorithm}`", *returns, *summaries])
    return [f"| {' | '.join(row)} |" for row in rows]


def _summaries(task: Task, found: Sequence[Result], is_complete: bool, threshold: float | None) -> list[str]:
    """Return the columns behind the seeds; those that judge are empty until all seeds have finished."""
    training = [result.training_return for result in found if result.training_return is not None]
    speeds = [result.steps_per_second for result in found if result.steps_per_second is not None]
    measured = [
        _shown(statistics.mean(training) if training else None),
        f"{statistics.mean(speeds):,.0f}" if speeds else "-",
    ]
    wanted = [] if threshold is None else [f"{threshold:g}"]
    if not is_complete:
        return ["-", *measured, *wanted, *(["-"] if wanted else [])]
    returns = [result.greedy_return for result in found]
    center = statistics.median(returns) if task.summary == "median" else statistics.mean(returns)
    return [
        f"{_shown(center)} ± {_shown(standard_error(returns))}" if task.summary == "interval" else _shown(center),
        *measured,
        *wanted,
        *([] if threshold is None else ["yes" if center >= threshold else "no"]),
    ]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _how(page: Page, runs: Sequence[Run]) -> str:
    further = "" if all(run.is_of_the_task for run in runs) else ", those of further seeds behind the seed"
    return (
        "The columns of the seeds hold mean returns over episodes of the greedy policy that a run ended with, in "
        f"environments seeded apart from training{further}; `in training` is the mean over the episodes of training "
        f"that ended in the last {FINAL_PART:.0%} of the run, over all seeds. `steps/s` are environment steps of "
        "training for each second of processor time, of one thread; they depend on the machine. Pictures show the "
        "smoothed returns of training episodes. Settings that are not named here are those of "
        f"`benchmarks/learning/{page.compositions}`, or the algorithm's defaults."
    )


def _finished(runs: Sequence[Run]) -> str:
    results = [result for result in (run.result for run in runs) if result is not None]
    missing = "; the tables say which are missing" if len(results) < len(runs) else ""
    hours = sum(result.steps / result.steps_per_second for result in results if result.steps_per_second) / 3600
    return f"{len(results)} of {len(runs)} runs have finished, after {hours:.1f} hours of processor time{missing}."


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
