"""Make the pages of tasks whose runs build on each other: make missing runs, and write a table."""

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import pytorchrl as prl
from benchmarks.shared.page_texts import paragraphs
from benchmarks.shared.rounds import versions
from pytorchrl.experiments import RunFolder
from storages.files import write_atomically

ROOT = Path(__file__).parents[2]

_RESULT = "staged_run.json"
"""File in the folder of a finished run."""


@dataclass(frozen=True)
class Stage:
    """A run of a task, which may use the finished runs of the stages before it."""

    name: str
    target_steps: int
    compose: Callable[[Path, int], prl.Scheme]
    """Composes from the folder with the runs of one seed, and the seed."""
    data: str
    """Data that it learns from beside its own transitions, in words."""


@dataclass(frozen=True)
class StagedTask:
    """Runs that are compared, and how they are evaluated."""

    title: str
    env: str
    question: str
    stages: tuple[Stage, ...]
    random_return: float
    """Mean return of random actions, which is 0 in shares of the expert's return."""
    expert_return: float | None = None
    """Mean return of the expert; None takes that of the stage "expert", without which there are no shares."""
    seeds: tuple[int, ...] = (1, 2, 3)
    episodes: int = 20
    """Episodes of the evaluation at the end of each run."""


@dataclass(frozen=True)
class StagedPage:
    """Tasks that a command runs, and a page that shows them."""

    name: str
    """Name of the page's file."""
    title: str
    tasks_file: str
    """The file with the settings, beside this one."""
    tasks: Mapping[str, StagedTask]
    default_tasks: tuple[str, ...] = ()
    """Tasks that a command without ``--only`` runs, where the others take hours; all where empty."""

    @property
    def command(self) -> str:
        """Words of the command line that make the page."""
        return f"learning_page.py {self.tasks_file.removesuffix('_tasks.py')}"


@dataclass(frozen=True)
class Result:
    """Result of a run."""

    mean_return: float
    steps: int
    seconds: float
    """Seconds of processor time, since the run was last resumed."""


@dataclass
class Arguments:
    """What to run."""

    seeds: tuple[int, ...] = ()
    """Seeds to run; those of the task where left out. Different seeds may be run in parallel."""
    runs: Path | None = None
    """Where the run folders are; a folder of the page's name under runs/ where left out."""
    docs: Path = ROOT / "docs"
    """Where the page goes."""
    steps: int | None = None
    """Steps of each run instead of the task's own, to try the command; needs other ``runs`` and ``kept``."""
    kept: Path = ROOT / "benchmarks" / "learning" / "finished"
    """Where results are kept as small files, without the run folders; to repeat a run, delete its file there, too."""


def make_page(page: StagedPage, only: Sequence[str], arguments: Arguments) -> None:
    """Run what has not finished, then write the page.

    Args:
        page: what to make.
        only: names of the tasks to run.
        arguments: what else to run, and where.
    """
    runs = arguments.runs or ROOT / "runs" / page.name
    kept = arguments.kept / page.name
    torch.set_num_threads(1)
    for name in only:
        task = page.tasks[name]
        for seed in arguments.seeds or task.seeds:
            _make_missing(name, task, seed, runs, kept, arguments.steps)
    output = arguments.docs / f"{page.name}.md"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page_text(page, kept), encoding="utf-8")
    print(f"Table: {output}")


def _make_missing(name: str, task: StagedTask, seed: int, runs: Path, kept: Path, steps: int | None) -> None:
    """Make all runs of a seed whose folders are missing or not finished, unless all their results were kept.

    Runs whose result was kept are made again, too, because others start from their networks; the result stays.
    """
    files = {stage.name: result_file(kept, name, seed, stage) for stage in task.stages}
    if all(file.exists() for file in files.values()):
        return
    for stage in task.stages:
        folder = runs / f"{name}-{seed}" / stage.name
        result = result_of(folder / _RESULT)
        if result is None:
            result = make(task, stage, folder, seed, steps)
            print(f"{name}, {stage.name}, seed {seed}: {result.mean_return:.1f}", flush=True)
        if not files[stage.name].exists():
            files[stage.name].parent.mkdir(parents=True, exist_ok=True)
            _write(result, files[stage.name])


def result_file(kept: Path, task: str, seed: int, stage: Stage) -> Path:
    """Return the file of the result of a stage.

    Args:
        kept: the folder of the page's results.
        task: name of the task.
        seed: of the run.
        stage: of the task.
    """
    own = re.sub(r"[^\w]+", "-", stage.name)
    return kept / f"{task}-{own}-{seed}.json"


def make(task: StagedTask, stage: Stage, folder: Path, seed: int, steps: int | None = None) -> Result:
    """Make a run, or resume it, and evaluate it.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the run is saved.
    """
    begun = time.process_time()
    scheme = stage.compose(folder.parent, seed)
    if RunFolder(folder).checkpoint_file.exists():
        learner = prl.Learner.resume(folder, scheme=scheme)
    else:
        learner = prl.Learner(scheme, steps or stage.target_steps, folder)
    is_done = learner.run()
    evaluation = learner.scheme.evaluate(task.episodes) if is_done else None
    learner.close()
    if evaluation is None:
        raise KeyboardInterrupt
    result = Result(evaluation.mean_return, learner.scheme.steps, time.process_time() - begun)
    _write(result, folder / _RESULT)
    return result


def result_of(file: Path) -> Result | None:
    """Read the result of a run; None where it has not finished."""
    return Result(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _write(result: Result, file: Path) -> None:
    write_atomically(file, json.dumps(asdict(result)).encode())


def page_text(page: StagedPage, kept: Path) -> str:
    """Return the results of finished runs as Markdown."""
    how = (
        "Figures are mean returns of the policy that a run ended with, acting as well as it can, in environments "
        "seeded apart from training. `share` is how far the mean of the seeds has come from random actions, at 0%, to "
        "the expert, at 100%. `CPU s` are seconds of processor time of a run, of one thread, on a machine that was "
        "busy with other work. Settings are those of "
        f"`benchmarks/learning/{page.tasks_file}`."
    )
    facts = "; ".join(f"{name} {value}" for name, value in versions("torch", "gymnasium", "mujoco").items())
    lines = [
        f"# {page.title}",
        "",
        f"Written by `benchmarks/learning/{page.command}`; the same command makes the runs that are missing.",
        "",
        *paragraphs(how),
        "",
        *paragraphs(f"The page was written with: {facts}."),
        "",
    ]
    for name, task in page.tasks.items():
        lines += [f"## {task.title}", "", *paragraphs(task.question), "", *_table(name, task, kept), ""]
        if not any(result_of(result_file(kept, name, seed, stage)) for seed in task.seeds for stage in task.stages):
            lines += [*paragraphs(f"Not run: `{page.command} --only {name}` makes these runs."), ""]
    return "\n".join(lines)


def _table(name: str, task: StagedTask, kept: Path) -> Iterator[str]:
    header = ["run", "steps", "data", *(f"seed {seed}" for seed in task.seeds), "mean", "share", "CPU s"]
    yield _row(header)
    yield _row(["---", "---:", "---", *["---:"] * (len(header) - 3)])
    expert = task.expert_return
    for stage in task.stages:
        results = [result_of(result_file(kept, name, seed, stage)) for seed in task.seeds]
        found = [result for result in results if result is not None]
        seeds = ["not run" if result is None else f"{result.mean_return:,.2f}" for result in results]
        mean = statistics.mean(result.mean_return for result in found) if len(found) == len(results) else None
        if expert is None and stage.name == "expert":
            expert = mean
        share = None if mean is None or expert is None else (mean - task.random_return) / (expert - task.random_return)
        seconds = f"{statistics.mean(result.seconds for result in found):,.0f}" if found else "-"
        summary = ["-" if mean is None else f"{mean:,.2f}", "-" if share is None else f"{share:.0%}", seconds]
        yield _row([f"`{stage.name}`", f"{stage.target_steps:,}", stage.data, *seeds, *summary])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
