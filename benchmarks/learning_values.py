"""What the value-based algorithms learn, beside their peers: tables and curves in ``docs/values.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, whichever command did it.
"""

import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# `import storages` is to find the package, not the benchmark beside this file.
sys.path.insert(0, str(Path(__file__).parents[1]))

import tyro
from example_runs import ROOT
from values_picture import draw_curves
from values_runs import FINAL_PART, TASKS, Result, Run, Task, TaskName, results_of


@dataclass
class Arguments:
    """What to run."""

    only: tuple[TaskName, ...] = ("cartpole", "pendulum", "breakout")
    """Tasks to run."""
    algorithms: tuple[str, ...] = ()
    """Algorithms to run, as the tables name them; all where left out."""
    seeds: tuple[int, ...] = ()
    """Seeds to run; all of each task where left out."""
    target_steps: int | None = None
    """Train for so many environment steps instead of each task's own number, to try the script out."""
    processes: int = 2
    """Runs at a time, each on one thread; 0 runs nothing and writes the page."""
    docs: Path = ROOT / "docs"
    """Where ``values.md`` and the curves go."""
    runs: Path = Path("runs/learning-values")
    """Where the run folders go."""


def main(arguments: Arguments) -> None:
    """Run what has not finished, then write the tables and draw the curves."""
    wanted = [
        run
        for task in arguments.only
        for run in runs_of(task, arguments)
        if (not arguments.algorithms or run.algorithm in arguments.algorithms)
        and (not arguments.seeds or run.seed in arguments.seeds)
    ]
    left = [run for run in wanted if run.result is None]
    print(f"{len(wanted)} runs, {len(wanted) - len(left)} of them finished", flush=True)
    for run in left:
        if run.missing_package is not None:
            print(f"{run.name} is left out: the package {run.missing_package} is not installed", flush=True)
    left = [run for run in left if run.missing_package is None]
    stopped = arguments.processes > 0 and _make(left, arguments.processes)
    page = arguments.docs / "values.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{_page(arguments)}\n", encoding="utf-8")
    print(f"Tables and curves: {page}")
    print(f"Run folders:       {arguments.runs}")
    failed = [run.name for run in left if run.result is None]
    if stopped:
        print("Stopped; the same command goes on from here")
    elif arguments.processes and failed:
        raise SystemExit(f"{len(failed)} runs failed: {'; '.join(failed)}")


def _make(runs: Sequence[Run], processes: int) -> bool:
    """Make runs, and print what becomes of each; returns whether they were stopped."""
    begun = time.monotonic()
    try:
        for done, run in enumerate(results_of(runs, processes), start=1):
            minutes = (time.monotonic() - begun) / 60
            print(f"{done} of {len(runs)} in {minutes:.0f} min: {run.name}: {_outcome(run)}", flush=True)
    except KeyboardInterrupt:
        return True
    return False


def runs_of(name: TaskName, arguments: Arguments) -> list[Run]:
    """All runs of a task, seed by seed, so that each algorithm has one before any has two."""
    task = TASKS[name]
    # Runs of another length are others: none is taken for one of a task's own number of steps.
    folder = name if arguments.target_steps is None else f"{name}-{arguments.target_steps}-steps"
    target_steps = arguments.target_steps or task.target_steps
    return [
        Run(name, algorithm, seed, target_steps, arguments.runs / f"{folder}-{algorithm.replace(' ', '-')}-{seed}")
        for seed in task.seeds
        for algorithm in task.algorithms
    ]


def _outcome(run: Run) -> str:
    if run.result is None:
        return "failed"
    return f"{run.result.greedy_return:.1f}, in training {_shown(run.result.training_return)}"


def _page(arguments: Arguments) -> str:
    lines = [
        "# What the value-based algorithms learn",
        "",
        "Written by `benchmarks/learning_values.py`; `make learning-values` makes the runs that are missing and writes "
        "it again.",
        "",
        *_paragraphs(_how(arguments)),
        "",
    ]
    for name, task in TASKS.items():
        by_algorithm: dict[str, list[Run]] = {algorithm: [] for algorithm in task.algorithms}
        for run in runs_of(name, arguments):
            by_algorithm[run.algorithm].append(run)
        lines += [f"## {task.env}", "", *_paragraphs(_what(task, arguments)), "", *_table(task, by_algorithm), ""]
        finished = {
            algorithm: [run.folder for run in runs if run.result is not None]
            for algorithm, runs in by_algorithm.items()
        }
        if any(finished.values()):
            picture = arguments.docs / f"values-{name}.png"
            draw_curves(finished, f"{task.env}, training episodes", picture)
            lines += [f"![Return of training episodes over environment steps]({picture.name})", ""]
    return "\n".join(lines[:-1])


def _table(task: Task, by_algorithm: dict[str, list[Run]]) -> list[str]:
    header = ["algorithm", *(f"seed {seed}" for seed in task.seeds), task.summary, "in training", "steps/s"]
    if task.threshold is not None:
        header += [f"{task.threshold:g} reached"]
    rows = [header, ["---", *["---:"] * (len(header) - 1)]]
    for algorithm, runs in by_algorithm.items():
        results = [run.result for run in runs]
        found = [result for result in results if result is not None]
        rows.append(
            [
                f"`{algorithm}`",
                *("missing" if result is None else _shown(result.greedy_return) for result in results),
                *_summaries(task, found, complete=len(found) == len(results)),
            ]
        )
    return [f"| {' | '.join(row)} |" for row in rows]


def _summaries(task: Task, found: Sequence[Result], *, complete: bool) -> list[str]:
    """The columns behind the seeds; of what is not complete, nothing is summed up."""
    if not complete:
        return ["-"] * (3 if task.threshold is None else 4)
    summary = getattr(statistics, task.summary)([result.greedy_return for result in found])
    training = [result.training_return for result in found if result.training_return is not None]
    speeds = [result.steps_per_second for result in found if result.steps_per_second is not None]
    columns = [
        _shown(summary),
        _shown(statistics.mean(training) if training else None),
        f"{statistics.mean(speeds):,.0f}" if speeds else "-",
    ]
    return columns if task.threshold is None else [*columns, "yes" if summary >= task.threshold else "no"]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _what(task: Task, arguments: Arguments) -> str:
    steps = arguments.target_steps or task.target_steps
    return f"{steps:,} environment steps, {task.episodes} episodes of the greedy policy. {task.settings}"


def _paragraphs(text: str) -> list[str]:
    return textwrap.fill(text, 120).split("\n")


def _how(arguments: Arguments) -> str:
    runs = [run for name in TASKS for run in runs_of(name, arguments)]
    results = [result for result in (run.result for run in runs) if result is not None]
    hours = sum(result.steps / result.steps_per_second for result in results if result.steps_per_second) / 3600
    return (
        "The columns of the seeds hold mean returns over episodes of the greedy policy that a run ended with, in "
        "environments seeded apart from training; `in training` is the mean over the episodes of training that ended "
        f"in the last {FINAL_PART:.0%} of the run, over all seeds. `steps/s` are environment steps of training for "
        "each second of processor time, of one thread; they depend on the machine. Pictures show the smoothed returns "
        "of training episodes. Settings that are not named here are those of `benchmarks/values_compositions.py`, or "
        f"the algorithm's defaults. {len(results)} of {len(runs)} runs have finished, after {hours:.1f} hours of "
        "processor time; the tables say which are missing."
    )


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
