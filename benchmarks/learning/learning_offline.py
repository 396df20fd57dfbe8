"""What algorithms learn from data, beside d3rlpy's with the same hyper-parameters: writes `offline-learning.md`.

The data is made by ``python -m pytorchrl data make``. What was stopped goes on by the same command: data where it was,
runs here from their checkpoints, runs of d3rlpy from their beginning; what has finished is taken as it is.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro

import pytorchrl as prl
from benchmarks.learning.example_runs import ROOT
from benchmarks.learning.offline_tasks import TASKS, Compared, Kind, OfflineTask
from pytorchrl.experiments import RunFolder
from storages.datasets import normalised, open_dataset, references_of, return_of

_EVALUATIONS = 10
_EPISODES = 20


@dataclass
class Arguments:
    """What to run."""

    only: tuple[str, ...] = ("cartpole",)
    """Tasks: cartpole (some minutes), pendulum (an hour or two), hopper (days)."""
    d3rlpy: Path | None = None
    """The interpreter of an environment with d3rlpy; None leaves its runs out."""
    updates: int | None = None
    """Updates of each run instead of each task's own number, to try the script out."""
    docs: Path = ROOT / "docs"
    """Where the page and the pictures go."""
    runs: Path = Path("runs/learning-offline")
    """Where data and runs go."""


@dataclass(frozen=True)
class Job:
    """A run, here or of the peer."""

    task: OfflineTask
    kind: Kind
    compared: Compared
    seed: int
    updates: int
    folder: Path

    @property
    def data(self) -> Path:
        """The data set."""
        return self.folder / "data" / f"{self.task.env}-{self.kind}.npz"

    def place(self, of: str) -> Path:
        """The folder of the run here ("ours") or of the peer's ("d3rlpy")."""
        name = f"{self.task.env}-{self.kind}-{self.compared.name}-{self.updates}-updates"
        return self.folder / of / name / f"seed-{self.seed}"

    @property
    def test_every(self) -> int:
        """Updates between evaluations."""
        return max(1, self.updates // _EVALUATIONS)

    def run(self) -> None:
        """Train here to the end, or go on."""
        learner = self._learner()
        try:
            if not learner.done() and not learner.run(checkpoint_every=self.test_every):
                raise KeyboardInterrupt
        finally:
            learner.close()

    def run_peer(self, interpreter: Path) -> None:
        """Let d3rlpy train, unless it has."""
        result = self.place("d3rlpy") / "result.json"
        if result.exists():
            return
        job = {
            "env": self.task.env,
            "data": str(self.data),
            "algorithm": self.compared.peer,
            "settings": dict(self.compared.theirs),
            "hidden_sizes": list(self.task.hidden_sizes),
            "seed": self.seed,
            "updates": self.updates,
            "test_every": self.test_every,
            "episodes": _EPISODES,
            "result": str(result),
        }
        script = Path(__file__).with_name("peer_d3rlpy.py")
        subprocess.run(
            [str(interpreter), str(script), json.dumps(job)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def curve(self, of: str) -> dict[int, float]:
        """Normalised scores by updates; none where the run was not made."""
        references = references_of(open_dataset(self.data).about)
        assert references is not None, "data that is made says its references"
        return {updates: float(normalised([value], references)[0]) for updates, value in self._returns(of).items()}

    def _returns(self, of: str) -> dict[int, float]:
        if of == "d3rlpy":
            file = self.place(of) / "result.json"
            saved = json.loads(file.read_text(encoding="utf-8"))["returns"] if file.exists() else {}
            return {int(updates): value for updates, value in saved.items()}
        records = prl.read_metrics(self.place(of) / "metrics.jsonl")
        return {int(record["steps"]): record["test/return"] for record in records if "test/return" in record}

    def _learner(self) -> prl.Learner:
        chosen = {"test_every": self.test_every, "num_test_episodes": _EPISODES}
        algorithm = getattr(prl, self.compared.name).create_factory(**self.compared.ours, **chosen)
        actor = prl.OffPolicyActor.create_factory(hidden_sizes=self.task.hidden_sizes, normalize_observations=True)
        storage = prl.ReplayBuffer.create_factory(size=open_dataset(self.data).steps)
        envs = prl.VecEnv.create_factory(self.task.env)
        filled = prl.from_dataset(storage, self.data)
        scheme = prl.Scheme(algorithm, actor, filled, test_envs_factory=envs, seed=self.seed)
        folder = self.place("ours")
        if RunFolder(folder).checkpoint_file.exists():
            return prl.Learner.resume(folder, scheme=scheme)
        return prl.Learner(scheme, self.updates, folder, log_every=self.test_every)


def jobs(name: str, arguments: Arguments) -> Iterator[Job]:
    """The runs of a task."""
    task = TASKS[name]
    for kind in task.kinds:
        for compared in task.algorithms:
            for seed in task.seeds:
                yield Job(task, kind, compared, seed, arguments.updates or task.updates, arguments.runs)


def main(arguments: Arguments) -> None:
    """Make data and runs that are missing, then the page."""
    torch.set_num_threads(1)
    wanted = [job for name in arguments.only for job in jobs(name, arguments)]
    for job in wanted:
        if not job.data.exists():
            print(f"{job.data} is made", flush=True)
            prl.make_dataset(
                job.task.env,
                job.kind,
                job.data,
                transitions=job.task.transitions,
                runs=arguments.runs / "agents",
            )
        began = time.perf_counter()
        job.run()
        if arguments.d3rlpy is not None:
            job.run_peer(arguments.d3rlpy)
        print(f"{job.place('ours')}: {time.perf_counter() - began:.0f} s", flush=True)
    page = arguments.docs / "offline-learning.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text_of(wanted, arguments), encoding="utf-8")
    for name in arguments.only:
        draw(name, list(jobs(name, arguments)), arguments.docs / f"offline-learning-{name}.png")


def text_of(wanted: Sequence[Job], arguments: Arguments) -> str:
    """The page."""
    rows = [_row(same) for same in _same_but_seed(wanted)]
    seeds = ", ".join(map(str, wanted[0].task.seeds))
    pictures = [f"![Normalised scores over updates, {name}](offline-learning-{name}.png)" for name in arguments.only]
    return "\n".join(
        [
            "# Learning from data",
            "",
            "What algorithms learn from data that `python -m pytorchrl data make` makes, beside d3rlpy's with the same",
            "hyper-parameters, networks and numbers of updates, in one run on one machine. Scores are 0 for random",
            f"actions and 1 for an expert ([references](data.md#make-data)); means over seeds {seeds} of {_EPISODES}",
            "episodes after the last update, and the smallest and the largest of a seed.",
            "",
            "| environment | data | score of the data | algorithm | updates | ours | d3rlpy |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            *pictures,
            "",
            "The hyper-parameters are in `benchmarks/learning/offline_tasks.py`. Made by",
            "`benchmarks/learning/learning_offline.py --d3rlpy PYTHON --only "
            f"{' '.join(arguments.only)}`, where PYTHON is the interpreter of an",
            "environment with d3rlpy; stopped, the same command goes on.",
            "",
        ]
    )


def draw(name: str, of_task: Sequence[Job], file: Path) -> None:
    """A panel for each data set and algorithm: scores of all seeds, and their means."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = _same_but_seed(of_task)
    figure = Figure(figsize=(4.2 * len(groups), 3.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, same in zip(np.atleast_1d(figure.subplots(1, len(groups), sharey=True)), groups, strict=True):
        for of, color in (("ours", "#0072B2"), ("d3rlpy", "#D55E00")):
            curves = [curve for job in same if (curve := job.curve(of))]
            for curve in curves:
                axes.plot(list(curve), list(curve.values()), color=color, alpha=0.3, linewidth=1)
            if curves:
                mean = np.mean([list(curve.values()) for curve in curves], axis=0)
                axes.plot(list(curves[0]), mean, color=color, linewidth=2, label=of)
        axes.set_title(f"{same[0].compared.name}, {same[0].task.env} {same[0].kind}", fontsize="medium")
        axes.set_xlabel("updates")
        axes.grid(alpha=0.25)
    axes.legend()
    figure.supylabel("normalised score")
    figure.savefig(file)


def _same_but_seed(wanted: Sequence[Job]) -> list[list[Job]]:
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for job in wanted:
        groups.setdefault((job.task.env, job.kind, job.compared.name), []).append(job)
    return list(groups.values())


def _row(same: Sequence[Job]) -> str:
    job = same[0]
    dataset = open_dataset(job.data)
    references = references_of(dataset.about)
    assert references is not None
    mean = np.mean([return_of(episode) for episode in dataset])
    cells = [
        job.task.env,
        f"{job.kind}, {dataset.steps:,} transitions",
        f"{normalised([float(mean)], references)[0]:.2f}",
        job.compared.name,
        f"{job.updates:,}",
        *(_cell([curve for one in same if (curve := one.curve(of))]) for of in ("ours", "d3rlpy")),
    ]
    return f"| {' | '.join(cells)} |"


def _cell(curves: Sequence[dict[int, float]]) -> str:
    if not curves:
        return "not run"
    finals = [list(curve.values())[-1] for curve in curves]
    return f"{np.mean(finals):.2f} ({min(finals):.2f} to {max(finals):.2f})"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
