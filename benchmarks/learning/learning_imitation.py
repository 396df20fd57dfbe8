"""What is learnt from experts: tables in ``docs/imitation.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, and says what was not run.
"""

import json
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro

import pytorchrl as prl
from benchmarks.learning.imitation_tasks import TASKS, ImitationTask, Stage
from benchmarks.shared.machine import machine

ROOT = Path(__file__).parents[2]
_SHORT = tuple(name for name, task in TASKS.items() if not task.is_long)


@dataclass
class Arguments:
    """What to run."""

    only: tuple[Literal["maze", "pendulum", "reward", "hopper"], ...] = _SHORT  # type: ignore[assignment]
    """Tasks to run; "hopper" takes hours."""
    seeds: tuple[int, ...] = ()
    """Those of the task where left out; parts of them may be run side by side."""
    runs: Path = ROOT / "runs" / "imitation"
    """Where the run folders are."""
    output: Path = ROOT / "docs" / "imitation.md"
    """The page to write."""
    steps: int | None = None
    """Of each run, in place of the task's own, to try the command; such runs want other ``runs``."""


@dataclass(frozen=True)
class Result:
    """What a run ended with."""

    mean_return: float
    steps: int
    seconds: float
    """Of processor time, since the run was last continued."""


def main(arguments: Arguments) -> None:
    """Run what has not finished, then write the page."""
    torch.set_num_threads(1)
    for name in arguments.only:
        task = TASKS[name]
        for seed in arguments.seeds or task.seeds:
            for stage in task.stages:
                folder = folder_of(arguments.runs, name, seed, stage)
                if result_of(folder) is None:
                    result = make(task, stage, folder, seed, arguments.steps)
                    print(f"{name}, {stage.name}, seed {seed}: {result.mean_return:.1f}", flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(page(arguments.runs), encoding="utf-8")
    print(f"Table: {arguments.output}")


def folder_of(runs: Path, task: str, seed: int, stage: Stage) -> Path:
    """The run folder of a stage."""
    return runs / f"{task}-{seed}" / stage.name


def make(task: ImitationTask, stage: Stage, folder: Path, seed: int, steps: int | None = None) -> Result:
    """Make a run, or go on with it, and evaluate it.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the run is saved.
    """
    begun = time.process_time()
    scheme = stage.compose(folder.parent, seed)
    if (folder / "checkpoint.pt").exists():
        learner = prl.Learner.resume(folder, scheme=scheme)
    else:
        learner = prl.Learner(scheme, steps or stage.target_steps, folder)
    is_done = learner.run()
    evaluation = learner.scheme.evaluate(task.episodes) if is_done else None
    learner.close()
    if evaluation is None:
        raise KeyboardInterrupt
    result = Result(evaluation.mean_return, learner.scheme.steps, time.process_time() - begun)
    _result_file(folder).write_text(json.dumps(asdict(result)), encoding="utf-8")
    return result


def result_of(folder: Path) -> Result | None:
    """None where the run has not finished."""
    file = _result_file(folder)
    return Result(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _result_file(folder: Path) -> Path:
    return folder / "imitation_run.json"


def page(runs: Path) -> str:
    """What has finished, as Markdown."""
    how = (
        "Figures are mean returns of the policy that a run ended with, acting as well as it can, in environments "
        "seeded apart from training. `share` is how far the mean of the seeds has come from random actions, at 0%, to "
        "the expert, at 100%. `CPU s` are seconds of processor time of a run, of one thread, on a machine that was "
        "busy with other work. Settings are those of `benchmarks/learning/imitation_tasks.py`."
    )
    facts = "; ".join(f"{name} {value}" for name, value in machine("torch", "gymnasium", "mujoco").items())
    lines = [
        "# What is learnt from experts",
        "",
        "Written by `benchmarks/learning/learning_imitation.py`; the same command makes the runs that are missing.",
        "",
        *_paragraphs(how),
        "",
        *_paragraphs(f"The page was written on: {facts}."),
        "",
    ]
    for name, task in TASKS.items():
        lines += [f"## {task.title}", "", *_paragraphs(task.question), "", *_table(name, task, runs), ""]
        if not any(result_of(folder_of(runs, name, seed, stage)) for seed in task.seeds for stage in task.stages):
            lines += [*_paragraphs(f"Not run: `learning_imitation.py --only {name}` makes these runs."), ""]
    return "\n".join(lines)


def _table(name: str, task: ImitationTask, runs: Path) -> Iterator[str]:
    header = ["run", "steps", "labels", *(f"seed {seed}" for seed in task.seeds), "mean", "share", "CPU s"]
    yield _row(header)
    yield _row(["---", "---:", "---", *["---:"] * (len(header) - 3)])
    expert = task.expert_return
    for stage in task.stages:
        results = [result_of(folder_of(runs, name, seed, stage)) for seed in task.seeds]
        found = [result for result in results if result is not None]
        seeds = ["not run" if result is None else f"{result.mean_return:,.2f}" for result in results]
        mean = statistics.mean(result.mean_return for result in found) if len(found) == len(results) else None
        if expert is None and stage.name == "expert":
            expert = mean
        share = None if mean is None or expert is None else (mean - task.random_return) / (expert - task.random_return)
        seconds = f"{statistics.mean(result.seconds for result in found):,.0f}" if found else "-"
        summary = ["-" if mean is None else f"{mean:,.2f}", "-" if share is None else f"{share:.0%}", seconds]
        yield _row([f"`{stage.name}`", f"{stage.target_steps:,}", stage.labels, *seeds, *summary])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _paragraphs(text: str) -> list[str]:
    return textwrap.fill(text, 120).split("\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
