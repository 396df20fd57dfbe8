"""Returns of the examples: each with three seeds, as a table and curves in ``docs/learning.md``.

The figures are means over episodes of an evaluation of the final policy with greedy actions, in environments with
seeds that training does not use.
"""

import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

import pytorchrl as prl
from benchmarks.learning.example_runs import ROOT, ExampleName, Result, Run, can_run, results_of
from pytorchrl.terminal import ending_with_its_reader


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    example: ExampleName
    threshold: float
    """Mean return that every seed has to reach."""
    env: str | None = None
    """Environment instead of the example's own; one of MuJoCo."""

    @property
    def name(self) -> str:
        """Name in the table."""
        return self.example if self.env is None else f"{self.example} --env {self.env}"

    @property
    def slug(self) -> str:
        """Name in folders and files."""
        return self.example if self.env is None else f"{self.example}-{self.env}"

    @property
    def can_run(self) -> bool:
        """Whether the packages that it needs are installed."""
        return can_run(self.example) and (self.env is None or find_spec("mujoco") is not None)


ENTRIES: tuple[Entry, ...] = (
    Entry("ppo_cartpole", 475.0),
    Entry("dqn_cartpole", 450.0),
    Entry("iqn_cartpole", 450.0),
    Entry("qrdqn_cartpole", 450.0),
    Entry("sac_pendulum", -160.0),
    Entry("td3_pendulum", -160.0),
    Entry("trpo_cartpole", 475.0),
    Entry("trpo_cartpole", 950.0, "InvertedPendulum-v5"),
    Entry("reinforce_cartpole", 400.0),
    Entry("bc_cartpole", 475.0),
    Entry("bcq_pendulum", -300.0),
    Entry("gail_cartpole", 450.0),
    Entry("dqn_her_bitflipping", -11.5),
    Entry("sac_her_pointmaze", 0.9),
    Entry("ppo_memory_cartpole", 400.0),
    Entry("dqn_memory_cartpole", 400.0),
    Entry("sac_memory_pendulum", -300.0),
)


@dataclass
class Arguments:
    """What to run."""

    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the runs of each example."""
    only: ExampleName | None = None
    """Run one example alone; the table will hold no other."""
    episodes: int = 20
    """Episodes of the evaluation at the end of each run."""
    target_steps: int | None = None
    """Environment steps instead of the example's own number, to try the script."""
    processes: int = 2
    """Runs at a time, each on one thread."""
    docs: Path = ROOT / "docs"
    """Where ``learning.md`` and the curves go."""
    runs: Path | None = None
    """Where the run folders go; a new folder under runs/ where left out. Finished runs there are used."""


def main(arguments: Arguments) -> None:
    """Run everything, then write the table and draw the curves."""
    folder = arguments.runs or Path("runs") / f"learning-{time.strftime('%Y%m%d-%H%M%S')}"
    entries = [entry for entry in ENTRIES if arguments.only in (None, entry.example)]
    for entry in entries:
        if not entry.can_run:
            print(f"{entry.name} is left out: a package that it needs is not installed")
    entries = [entry for entry in entries if entry.can_run]
    entry_of = {_folder(entry, seed, folder): entry for entry in entries for seed in arguments.seeds}
    runs = [_run(entry, seed, folder, arguments) for entry in entries for seed in arguments.seeds]
    results: dict[tuple[Entry, int], Result] = {}
    for run, result in results_of(runs, arguments.processes):
        entry = entry_of[run.log_dir]
        results[entry, run.seed] = result
        print(_line(entry, run.seed, result), flush=True)
    by_entry = {entry: [results[entry, seed] for seed in arguments.seeds] for entry in entries}
    arguments.docs.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        prl.plot_runs([_folder(entry, seed, folder) for seed in arguments.seeds], arguments.docs / _curve(entry))
    page = arguments.docs / "learning.md"
    page.write_text(_page(by_entry, arguments), encoding="utf-8")
    print(f"Table and curves: {page}")
    print(f"Run folders:      {folder}")


def _run(entry: Entry, seed: int, folder: Path, arguments: Arguments) -> Run:
    settings = {} if arguments.target_steps is None else {"target_steps": arguments.target_steps}
    if entry.env is not None:
        settings |= {"env": entry.env}
    return Run(entry.example, seed, _folder(entry, seed, folder), settings, arguments.episodes)


def _folder(entry: Entry, seed: int, folder: Path) -> Path:
    return folder / f"{entry.slug}-{seed}"


def _line(entry: Entry, seed: int, result: Result) -> str:
    reached = "reached" if result.mean_return >= entry.threshold else "missed"
    return (
        f"{entry.name}, seed {seed}: {_shown(result.mean_return, entry.threshold)} after {result.steps:,} steps in "
        f"{result.seconds:.0f} s ({entry.threshold:g} {reached})"
    )


def _shown(value: float, threshold: float) -> str:
    """Format a return with as many decimals as are meaningful."""
    return f"{value:.{2 if abs(threshold) <= 1 else 1}f}"


def _curve(entry: Entry) -> str:
    return f"learning-{entry.slug.replace('_', '-').lower()}.png"


def _page(by_entry: dict[Entry, list[Result]], arguments: Arguments) -> str:
    header = ["example", "environment", "steps", "threshold", *(f"seed {seed}" for seed in arguments.seeds)]
    header += ["mean", "reached", "seconds", "steps/s"]
    lines = [
        "# Results of the examples",
        "",
        "Written by `benchmarks/learning/learning.py`; `make learning` trains everything again and writes it again.",
        "",
        textwrap.fill(_how(arguments), 120),
        "",
        _row(header),
        _row(["---", "---", *["---:"] * (len(header) - 2)]),
        *(_entry_row(entry, group) for entry, group in by_entry.items()),
        "",
    ]
    for entry, group in by_entry.items():
        picture = f"![Return over environment steps of {len(group)} runs of {entry.name}]({_curve(entry)})"
        option = "" if entry.env is None else f" with `--env {entry.env}`"
        lines += [f"## `examples/{entry.example}.py`{option}", "", picture, ""]
    return "\n".join(lines)


def _how(arguments: Arguments) -> str:
    seeds = ", ".join(map(str, arguments.seeds))
    changed = "" if arguments.target_steps is None else f" but `target_steps`, to {arguments.target_steps:,}"
    return (
        f"Each example ran with the seeds {seeds} and nothing else set{changed}. The columns of the seeds hold mean "
        f"returns over {arguments.episodes} episodes of the policy that a run ended with, acting as well as it can, in "
        "environments seeded apart from training and from the evaluations during it; of `sac_her_pointmaze`, they are "
        "the share of episodes that reach their goal. `seconds` is a run from its composition to its curve, "
        "evaluations included; `steps/s` is of training alone. Both are means over the seeds, with "
        f"{arguments.processes} at a time of one thread each, and depend on the machine and on what else it was "
        "doing; the returns depend on the machine only as far as its floating-point arithmetic does. Settings "
        "of many examples were chosen by looking at runs of some of these seeds."
    )


def _entry_row(entry: Entry, group: Sequence[Result]) -> str:
    returns = [result.mean_return for result in group]
    reached = sum(value >= entry.threshold for value in returns)
    return _row(
        [
            f"`{entry.name}`",
            group[0].env,
            f"{group[0].steps:,}",
            f"{entry.threshold:g}",
            *(_shown(value, entry.threshold) for value in returns),
            _shown(statistics.mean(returns), entry.threshold),
            f"{reached} of {len(returns)}",
            f"{statistics.mean(result.seconds for result in group):.0f}",
            f"{statistics.mean(result.steps_per_second for result in group):,.0f}",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
