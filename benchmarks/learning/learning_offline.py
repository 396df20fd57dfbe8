"""Scores of offline algorithms, beside d3rlpy's with the same hyper-parameters: writes `offline-learning.md`.

The data is made by ``python -m pytorchrl data make``. The same command continues what was stopped: data where
it was, our runs from their checkpoints, runs of d3rlpy from the beginning; finished runs are used as they are.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro

from benchmarks.learning.example_runs import ROOT
from benchmarks.learning.offline_runs import EPISODES, LIBRARIES, Finished, Job, Library
from benchmarks.learning.offline_tasks import TASKS
from benchmarks.shared.page_texts import paragraphs, standard_error
from pytorchrl.terminal import ending_with_its_reader

_PANELS_IN_A_ROW = 3


@dataclass
class Arguments:
    """What to run."""

    only: tuple[str, ...] = ("cartpole",)
    """Tasks to run: cartpole, cartpole-more (some minutes each), pendulum, pendulum-more, pendulum-constrained,
    pendulum-bcq, pendulum-regularised and hopper (hours)."""
    d3rlpy: Path | None = None
    """The interpreter of an environment with d3rlpy; None leaves its runs out."""
    updates: int | None = None
    """Updates of each run instead of each task's own number, to try the script out."""
    docs: Path = ROOT / "docs"
    """Where the page and the pictures go."""
    runs: Path = Path("runs/learning-offline")
    """Where data and runs go."""
    kept: Path = ROOT / "benchmarks" / "learning" / "finished" / "offline"
    """Where results of finished runs are kept as small files, without the run folders; to repeat a run, delete its file
    there, too."""


def jobs(name: str, arguments: Arguments) -> Iterator[Job]:
    """The runs of a task."""
    task = TASKS[name]
    for seed in task.seeds:
        for kind in task.kinds:
            for compared in task.algorithms:
                updates = arguments.updates or task.updates
                yield Job(task, kind, compared, seed, updates, arguments.runs, arguments.kept)


def main(arguments: Arguments) -> None:
    """Make data and runs that are missing, then the page."""
    torch.set_num_threads(1)
    for job in [job for name in arguments.only for job in jobs(name, arguments)]:
        begun = time.perf_counter()
        job.run()
        if arguments.d3rlpy is not None:
            job.run_peer(arguments.d3rlpy)
        print(f"{job.name}, seed {job.seed}: {time.perf_counter() - begun:.0f} s", flush=True)
    by_task = {name: list(jobs(name, arguments)) for name in TASKS}
    page = arguments.docs / "offline-learning.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text_of(by_task), encoding="utf-8")
    for name, of_task in by_task.items():
        if _begun(of_task):
            draw(of_task, arguments.docs / f"offline-learning-{name}.png")


def text_of(by_task: Mapping[str, Sequence[Job]]) -> str:
    """Return the text of the page."""
    begun = {name: of_task for name, of_task in by_task.items() if _begun(of_task)}
    missing = [name for name in by_task if name not in begun]
    lines = [
        "# Results of offline learning",
        "",
        *paragraphs(
            "What algorithms learn from data that `python -m pytorchrl data make` makes, beside d3rlpy's with the same "
            "hyper-parameters, networks and numbers of updates. Scores are 0 for random actions and 1 for an expert "
            f"([references](data.md#make-data)): means over the seeds of {EPISODES} episodes after the last update, "
            "with their standard errors, and the smallest and the largest of a seed."
        ),
        "",
        "| environment | data | score of the data | algorithm | updates | ours | d3rlpy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(same) for of_task in begun.values() for same in _same_but_seed(of_task)),
        "",
    ]
    for name in begun:
        lines += [f"![Normalised scores over updates, {name}](offline-learning-{name}.png)", ""]
    lines += paragraphs(
        "In Pendulum, d3rlpy's AWAC is as good as ours after 2,000 updates and ends below random actions; why was not "
        "examined. DiscreteBCQ has eight seeds, as d3rlpy's was ahead with expert data in the first three; over the "
        "last six evaluations, the means there are 0.92 ± 0.05 (ours) and 0.94 ± 0.06. BCQ has six seeds, for the same "
        "reason; over the last four evaluations, the means are 0.73 ± 0.02 (ours) and 0.76 ± 0.02. Twenty episodes of "
        "Pendulum depend on their start states: d3rlpy's BCQ and all of ours have other ones in each evaluation, the "
        "other runs of d3rlpy the same ones in all of a seed. A flag of d3rlpy's decoder is inverted, so that BCQ "
        "decodes actions that are not squashed, and BEAR compares squashed actions with others that are not; but for "
        "it, updates of BCQ were equal, given the same weights, batches and noise. BEAR has no entropy bonus in "
        "either. The weights of ReBRAC and FQL in the runs of 8,000 updates were chosen by runs with another seed and "
        "4,000 updates, in which TD3BC with `alpha` 10 and 50, and IQL with `expectile=0.9`, were about as good as "
        "with the papers' values. The hyper-parameters are in `benchmarks/learning/offline_tasks.py`. Written by "
        "`benchmarks/learning/learning_offline.py --d3rlpy PYTHON --only TASKS`, where PYTHON is the interpreter of an "
        "environment with d3rlpy; the same command continues runs that were stopped."
    )
    if missing:
        lines += ["", f"Not run: `learning_offline.py --only {' '.join(missing)}` makes these runs."]
    return "\n".join([*lines, ""])


def draw(of_task: Sequence[Job], file: Path) -> None:
    """Draw a panel for each data set and algorithm: scores of all seeds, and their means."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = _same_but_seed(of_task)
    columns = min(len(groups), _PANELS_IN_A_ROW)
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for unused in panels[len(groups) :]:
        unused.set_visible(False)
    for axes, same in zip(panels, groups, strict=False):
        for of, color in zip(LIBRARIES, ("#0072B2", "#D55E00"), strict=True):
            finished = _finished(same, of)
            for one in finished:
                axes.plot(one.updates, one.scores, color=color, alpha=0.3, linewidth=1)
            if finished:
                mean = np.mean([one.scores for one in finished], axis=0)
                axes.plot(finished[0].updates, mean, color=color, linewidth=2, label=of)
        axes.set_title(f"{same[0].compared.name}, {same[0].task.env} {same[0].kind}", fontsize="medium")
        axes.set_xlabel("updates")
        axes.grid(alpha=0.25)
        axes.legend()
    figure.supylabel("normalised score")
    figure.savefig(file)


def _begun(of_task: Sequence[Job]) -> bool:
    return any(job.finished(of) for job in of_task for of in LIBRARIES)


def _finished(same: Sequence[Job], of: Library) -> list[Finished]:
    return [finished for job in same if (finished := job.finished(of)) is not None]


def _same_but_seed(wanted: Sequence[Job]) -> list[list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in wanted:
        groups.setdefault(job.name, []).append(job)
    return list(groups.values())


def _row(same: Sequence[Job]) -> str:
    job = same[0]
    by_library = [_finished(same, of) for of in LIBRARIES]
    data = next((finished for of_library in by_library for finished in of_library), None)
    cells = [
        job.task.env,
        f"{job.kind}, {data.transitions:,} transitions" if data else job.kind,
        f"{data.data_score:.2f}" if data else "-",
        job.compared.name,
        f"{job.updates:,}",
        *(
            "no such algorithm"
            if of == "d3rlpy" and job.compared.peer is None
            else _cell([finished.scores[-1] for finished in of_library])
            for of, of_library in zip(LIBRARIES, by_library, strict=True)
        ),
    ]
    return f"| {' | '.join(cells)} |"


def _cell(scores: Sequence[float]) -> str:
    if not scores:
        return "not run"
    error = f" ± {standard_error(scores):.2f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.2f}{error} ({min(scores):.2f} to {max(scores):.2f})"


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
