"""Measure the presets of ``train``, and write their table: ``presets.py --tasks ppo-cartpole sac-pendulum --seeds 1``.

Each preset is trained as ``python -m pytorchrl train`` does, for its number of steps. A run that was stopped, by Ctrl-C
or in any other way, is continued by the same command with the same ``--runs``; one that has finished is taken as it is.
The table holds what has finished, whichever command did it.
"""

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro
import yaml

import pytorchrl as prl
from benchmarks.learning import presets_zoo
from benchmarks.learning.atari_100k import GAMES, STEPS
from benchmarks.learning.learning_runs import results_of
from benchmarks.learning.preset_compositions import parts_of_preset
from benchmarks.learning.presets_tasks import MUJOCO, MUJOCO_VERSIONS, PRESETS, PresetTask
from benchmarks.shared.page_texts import paragraphs
from pytorchrl.commands.composition.callbacks_and_loggers import make_callbacks
from pytorchrl.commands.composition.parts import RunParts
from pytorchrl.commands.composition.presets import preset_of
from pytorchrl.scheme import evaluate
from pytorchrl.terminal import ending_with_its_reader
from storages.component.factory import Factory, make_factory
from storages.files import write_atomically

ROOT = Path(__file__).parents[2]
_EVALUATIONS, _CHECKPOINTS, _RECORDS = 20, 10, 100
"""Numbers of evaluations, checkpoints and records of a run."""
EPISODES = 100
"""Episodes of the evaluation at the end of a run."""
COPIES = 10
"""Copies of the environment that play these episodes."""
# The evaluation's environments are seeded by this and the run's seed, independently of training.
_EVALUATION_SEED = 20_000
_BEGIN, _END = "<!-- measured presets -->", "<!-- end of measured presets -->"


@dataclass(frozen=True)
class Result:
    """Result of a run."""

    steps: int
    final_return: float
    """Mean return of the policy that the run ended with."""
    best_return: float
    """Mean return, in the same episodes, of the policy that was best in the evaluations during training."""
    minutes: float
    """Minutes of processor time, evaluations included; those of steps before the last continuation are estimated."""


@dataclass(frozen=True)
class PresetRun:
    """A run of a preset with a seed."""

    task: PresetTask
    seed: int
    folder: Path
    """The run folder. A finished run in it is used; one that was stopped is continued."""
    kept_file: Path
    """File with the result of a finished run, which is kept when the run folder is gone."""
    steps_given: int | None = None
    """Environment steps instead of the preset's own number."""

    @property
    def name(self) -> str:
        """Name in printed texts."""
        return f"{self.task.name}, seed {self.seed}"

    @property
    def parts(self) -> RunParts:
        """The parts that ``train`` chooses, with fewer evaluations."""
        steps = self.steps_given or self.preset["steps"]
        return parts_of_preset(self.task.algorithm, self.task.env, steps, test_every=max(1, steps // _EVALUATIONS))

    @property
    def preset(self) -> Mapping[str, Any]:
        """The preset of the algorithm in the environment."""
        return preset_of(getattr(prl, self.task.algorithm), self.task.env)[0]

    @property
    def target_steps(self) -> int:
        """Environment steps of the whole run."""
        return self.parts.steps

    @property
    def steps(self) -> int:
        """Environment steps up to the last record."""
        metrics = self.folder / "metrics.jsonl"
        records = prl.read_metrics(metrics) if metrics.exists() else []
        return int(records[-1]["steps"]) if records else 0

    @property
    def result(self) -> Result | None:
        """Result of the run; None while it has not finished."""
        for file in (self.folder / "preset_run.json", self.kept_file):
            if file.exists():
                return Result(**json.loads(file.read_text(encoding="utf-8")))
        return None

    def make(self) -> None:
        """Train or resume the run, and write its result unless it was stopped."""
        torch.set_num_threads(1)
        parts = self.parts
        scheme = parts.scheme(self.seed, "cpu")
        if (self.folder / "checkpoint.pt").exists():
            learner = prl.Learner.resume(self.folder, scheme=scheme)
        else:
            learner = prl.Learner(
                scheme,
                parts.steps,
                self.folder,
                log_every=max(1, parts.steps // _RECORDS),
                callbacks=make_callbacks(self.preset),
                overwrite=True,
            )
        begun_at, begun = scheme.steps, time.process_time()
        finished = learner.run(checkpoint_every=max(1, parts.steps // _CHECKPOINTS))
        seconds, share = time.process_time() - begun, (scheme.steps - begun_at) / scheme.steps
        # A run that had finished, of which only the result is missing, knows its time from its records.
        minutes = (seconds / share if share else learner.get_metrics()["seconds"]) / 60
        envs = scheme.test_envs_factory
        learner.close()
        if not finished or envs is None:
            return
        best = self.folder / "best_weights.pt"
        final_return = self.evaluated(scheme.algorithm, envs)
        best_return = self.evaluated(prl.load_policy(best).algorithm, envs) if best.exists() else final_return
        result = Result(scheme.steps, final_return, best_return, minutes)
        write_atomically(self.folder / "preset_run.json", json.dumps(asdict(result)).encode())

    def evaluated(self, algorithm: prl.Algorithm, envs: Factory[prl.VecEnv]) -> float:
        """Return the mean return of an algorithm's deterministic policy over the episodes of this run's evaluation."""
        with copies(envs)() as made:
            seed = np.random.SeedSequence([_EVALUATION_SEED, self.seed])
            return evaluate(algorithm, made, EPISODES, seed).mean_return

    def keep(self) -> None:
        """Write the result of a finished run into its ``kept_file``."""
        result = self.result
        if result is not None and not self.kept_file.exists():
            self.kept_file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.kept_file, json.dumps(asdict(result)).encode())


def copies(envs: Factory[prl.VecEnv]) -> Factory[prl.VecEnv]:
    """Return a factory of several copies of an environment, for an evaluation."""
    return make_factory(envs.cls, (), {**envs.hyper_parameters, "num_envs": COPIES})


@dataclass
class Arguments:
    """What to measure."""

    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")] = ()
    """Names of presets, such as ppo-cartpole; all, from the shortest to the longest, where left out."""
    seeds: tuple[int, ...] = ()
    """Seeds to run; those of each preset where left out."""
    processes: int = 1
    """Runs at a time, each on one thread; 0 runs nothing and writes the table."""
    runs: Path = ROOT / "runs" / "presets"
    """Where the run folders go."""
    page: Path = ROOT / "docs" / "presets.md"
    """The page that has the table, between markers."""
    returns: Path = ROOT / "pytorchrl" / "commands" / "presets" / "returns.yaml"
    """The file of measured returns, from which ``train`` names the expected one."""
    published: Path = ROOT / "pytorchrl" / "commands" / "presets" / "published.yaml"
    """The file of published returns, of which ``train`` names one where there is none of ours."""
    kept: Path = ROOT / "benchmarks" / "learning" / "finished" / "presets"
    """Where results of finished runs are kept as small files, without the run folders; to repeat a run, delete its file
    there, too."""
    zoo: Path | None = None
    """A folder to write the best policy of each finished short preset to, such as pytorchrl/zoo, and their table."""
    steps: int | None = None
    """Environment steps instead of each preset's own number, to try the command; needs other ``runs`` and ``kept``."""


def main(arguments: Arguments) -> None:
    """Make what has not finished, then write the table and the file of returns."""
    known = {task.name: task for task in PRESETS}
    if unknown := set(arguments.tasks) - set(known):
        raise SystemExit(f"--tasks: there is no preset {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(arguments.tasks)] or list(PRESETS)
    wanted = [run for task in chosen for run in runs_of(task, arguments)]
    left = [run for run in wanted if run.result is None]
    print(f"{len(wanted)} runs, {len(wanted) - len(left)} of them finished", flush=True)
    if arguments.processes:
        for task in {run.task: None for run in left if is_missing(run.task)}:
            print(f"{task.name} is left out: the package {task.package} is not installed", flush=True)
        _make([run for run in left if not is_missing(run.task)], arguments)
    write(arguments)
    if arguments.zoo is not None:
        write_zoo(chosen, arguments.zoo, arguments)


def runs_of(task: PresetTask, arguments: Arguments) -> list[PresetRun]:
    """Return the runs of a preset that the arguments ask for."""
    return [
        PresetRun(
            task,
            seed,
            arguments.runs / f"{task.name}-{seed}",
            arguments.kept / f"{task.name}-{seed}.json",
            arguments.steps,
        )
        for seed in arguments.seeds or task.seeds
    ]


def is_missing(task: PresetTask) -> bool:
    """Whether the package that an environment needs is not installed."""
    return task.package is not None and importlib.util.find_spec(task.package) is None


def _make(runs: Sequence[PresetRun], arguments: Arguments) -> None:
    """Make runs, print the result of each, and write the table after each."""
    begun = time.monotonic()
    try:
        for done, run in enumerate(results_of(runs, arguments.processes), start=1):
            result = run.result
            said = "failed" if result is None else f"{result.final_return:.1f}, at best {result.best_return:.1f}"
            print(f"{done} of {len(runs)} in {(time.monotonic() - begun) / 60:.0f} min: {run.name}: {said}", flush=True)
            write(arguments)
    except KeyboardInterrupt:
        print("Stopped; the same command goes on from here")


def write_zoo(tasks: Sequence[PresetTask], zoo: Path, arguments: Arguments) -> None:
    """Write the best policy of each short task, of whose runs the folders are there, and the table of all policies."""
    for task in (task for task in tasks if len(task.seeds) > 1 and not is_missing(task)):
        results = {run: run.result for run in runs_of(task, arguments) if (run.folder / "checkpoint.pt").exists()}
        found = {run: result for run, result in results.items() if result is not None}
        if not found:
            continue
        run, result = max(found.items(), key=lambda item: max(item[1].final_return, item[1].best_return))
        is_best_at_end = result.final_return >= result.best_return
        source = run.folder if is_best_at_end else run.folder / "best_weights.pt"
        print(f"{task.name}: {presets_zoo.write_policy(source, zoo / f'{task.name}.pt'):.2f}", flush=True)
    presets_zoo.write_page(zoo)


def measured(arguments: Arguments) -> dict[PresetTask, list[Result]]:
    """Keep the results of finished runs, and return them, for all presets."""
    everything = Arguments(runs=arguments.runs, kept=arguments.kept, steps=arguments.steps)
    runs = {task: runs_of(task, everything) for task in PRESETS}
    for run in (run for of_task in runs.values() for run in of_task):
        run.keep()
    found = {task: [run.result for run in of_task] for task, of_task in runs.items()}
    return {task: [result for result in results if result is not None] for task, results in found.items()}


def write(arguments: Arguments) -> None:
    """Write the table into the page, and the files of measured and of published returns."""
    results = measured(arguments)
    text = arguments.page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join([_BEGIN, "", *paragraphs(_how(results)), "", *_table(results), "", _END])
    write_atomically(arguments.page, f"{before}{table}{after}".encode())
    write_atomically(arguments.returns, returns_text(results).encode())
    write_atomically(arguments.published, published_text(PRESETS).encode())


def returns_text(results: Mapping[PresetTask, Sequence[Result]]) -> str:
    """Return the measured returns as YAML: algorithm, environment, and the mean return of each seed's last policy."""
    returns: dict[str, dict[str, Any]] = {}
    for task, found in results.items():
        if found:
            of_env = {
                "steps": found[0].steps,
                "returns": [round(result.final_return, 2) for result in found],
                "minutes": round(statistics.mean(result.minutes for result in found), 1),
            }
            returns.setdefault(task.algorithm, {})[task.env] = of_env
    head = (
        "# Returns of presets, a mean over 100 episodes for each seed, and minutes of processor time: written by\n"
        "# benchmarks/learning/presets.py.\n"
    )
    return head + yaml.safe_dump(returns, default_flow_style=None, width=120)


def published_text(tasks: Sequence[PresetTask]) -> str:
    """Return the published returns as YAML, those of all games of Atari in 100,000 steps among them.

    Those that are the largest there can be are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if task.published is not None and task.published.steps is not None:
            source = task.published.source
            if task.package == MUJOCO:
                source += f", in {task.env.partition('-')[0]}-{MUJOCO_VERSIONS[source]}"
            of_env = {"return": task.published.mean_return, "steps": task.published.steps, "source": source}
            found.setdefault(task.algorithm, {})[task.env] = of_env
    for game, scores in GAMES.items():
        of_env = {
            "return": scores.data_efficient_rainbow,
            "steps": STEPS,
            "source": "van Hasselt et al., arXiv 1906.05243",
        }
        found.setdefault("Rainbow", {}).setdefault(f"{game}NoFrameskip-v4", of_env)
    head = "# Published returns, beside those of presets: written by benchmarks/learning/presets.py.\n"
    return head + yaml.safe_dump(found, default_flow_style=None, width=120)


def _how(results: Mapping[PresetTask, Sequence[Result]]) -> str:
    count = sum(map(len, results.values()))
    of = sum(len(task.seeds) for task in results)
    return (
        f"Written by `benchmarks/learning/presets.py`; `make presets` makes the runs that are missing: {count} of {of} "
        f"have finished. The columns of the seeds hold mean returns over {EPISODES} episodes of the policy that a run "
        "ended with, acting deterministically, in environments seeded apart from training; `best` is the mean over the "
        "seeds of the policy that was best in the evaluations during training, in the same episodes. `minutes` are of "
        "processor time, of one thread, on a machine that was busy with other work. `python -m pytorchrl evaluate RUN "
        f"--episodes {EPISODES} --seed 1000` evaluates a run of yours in the same way, in other episodes."
    )


def _table(results: Mapping[PresetTask, Sequence[Result]]) -> list[str]:
    header = ["preset", "environment", "steps", "each seed", "mean", "best", "minutes", "published"]
    rows = [header, ["---", "---", "---:", "---", "---:", "---:", "---:", "---"]]
    for task, found in results.items():
        preset, _ = preset_of(getattr(prl, task.algorithm), task.env)
        row = [f"`{task.name}`", task.env, f"{preset['steps']:,}"]
        if found:
            row += [", ".join(shown(result.final_return) for result in found)]
            row += [shown(statistics.mean(result.final_return for result in found))]
            row += [shown(statistics.mean(result.best_return for result in found))]
            row += [f"{statistics.mean(result.minutes for result in found):.1f}"]
        else:
            row += ["not measured yet", "", "", ""]
        rows.append([*row, _published(task)])
    return [f"| {' | '.join(row)} |" for row in rows]


def shown(value: float) -> str:
    """Return a return with as many decimals as matter."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.1f}" if abs(value) >= 20 else f"{value:.2f}"


def _published(task: PresetTask) -> str:
    published = task.published
    if published is None:
        return "-"
    of = "" if published.steps is None else f" after {published.steps:,} steps"
    return f"{shown(published.mean_return)}{of} ({published.source})"


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
