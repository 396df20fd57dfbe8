"""What the examples learn: every example with three seeds, as a table and curves in ``docs/learning.md``.

The figures are means over episodes of an evaluation whose environments no run has met before, with the policy that a
run ended with, acting as well as it can.
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
from example_runs import ROOT, ExampleName, Result, Run, can_run, results_of

import pytorchrl as prl

THRESHOLDS: dict[ExampleName, float] = {
    "ppo_cartpole": 475.0,
    "dqn_cartpole": 450.0,
    "iqn_cartpole": 450.0,
    "qrdqn_cartpole": 450.0,
    "sac_pendulum": -160.0,
    "td3_pendulum": -160.0,
    "trpo_cartpole": 475.0,
    "reinforce_cartpole": 400.0,
    "bc_cartpole": 475.0,
    "bcq_pendulum": -300.0,
    "gail_cartpole": 450.0,
    "dqn_her_bitflipping": -11.5,
    "sac_her_pointmaze": 0.9,
    "ppo_memory_cartpole": 400.0,
    "dqn_memory_cartpole": 400.0,
    "sac_memory_pendulum": -300.0,
}
"""Mean return that every seed of an example is to reach."""


@dataclass
class Arguments:
    """What to run."""

    seeds: tuple[int, ...] = (1, 2, 3)
    """Runs of each example."""
    only: ExampleName | None = None
    """Run one example alone; the table will hold no other."""
    episodes: int = 20
    """Of the evaluation at the end of each run."""
    target_steps: int | None = None
    """Train for so many environment steps instead of the example's own number, to try the script out."""
    processes: int = 2
    """Runs at a time, each on one thread."""
    docs: Path = ROOT / "docs"
    """Where ``learning.md`` and the curves go."""
    runs: Path | None = None
    """Where the run folders go; a new folder under runs/ where left out. Runs that are finished there are taken."""


def main(arguments: Arguments) -> None:
    """Run everything, then write the table and draw the curves."""
    folder = arguments.runs or Path("runs") / f"learning-{time.strftime('%Y%m%d-%H%M%S')}"
    examples: list[ExampleName] = [arguments.only] if arguments.only else list(THRESHOLDS)
    for example in examples:
        if not can_run(example):
            print(f"{example} is left out: a package that it needs is not installed")
    examples = [example for example in examples if can_run(example)]
    settings = {} if arguments.target_steps is None else {"target_steps": arguments.target_steps}
    runs = [
        Run(example, seed, folder / f"{example}-{seed}", settings, arguments.episodes)
        for example in examples
        for seed in arguments.seeds
    ]
    results: dict[tuple[ExampleName, int], Result] = {}
    for run, result in results_of(runs, arguments.processes):
        results[run.example, run.seed] = result
        print(_line(run, result), flush=True)
    by_example = {example: [results[example, seed] for seed in arguments.seeds] for example in examples}
    arguments.docs.mkdir(parents=True, exist_ok=True)
    for example in examples:
        folders = [folder / f"{example}-{seed}" for seed in arguments.seeds]
        prl.plot_runs(folders, arguments.docs / _curve(example))
    page = arguments.docs / "learning.md"
    page.write_text(_page(by_example, arguments), encoding="utf-8")
    print(f"Table and curves: {page}")
    print(f"Run folders:      {folder}")


def _line(run: Run, result: Result) -> str:
    threshold = THRESHOLDS[run.example]
    return (
        f"{run.example}, seed {run.seed}: {shown(result.mean_return, run.example)} after {result.steps:,} steps in "
        f"{result.seconds:.0f} s ({threshold:g} {'reached' if result.mean_return >= threshold else 'missed'})"
    )


def shown(value: float, example: ExampleName) -> str:
    """A return with as many decimals as mean something."""
    return f"{value:.{2 if abs(THRESHOLDS[example]) <= 1 else 1}f}"


def _curve(example: ExampleName) -> str:
    return f"learning-{example.replace('_', '-')}.png"


def _page(by_example: dict[ExampleName, list[Result]], arguments: Arguments) -> str:
    header = ["example", "environment", "steps", "threshold", *(f"seed {seed}" for seed in arguments.seeds)]
    header += ["mean", "reached", "seconds", "steps/s"]
    lines = [
        "# What the examples learn",
        "",
        "Written by `benchmarks/learning.py`; `make learning` trains everything anew and writes it again.",
        "",
        textwrap.fill(_how(arguments), 120),
        "",
        _row(header),
        _row(["---", "---", *["---:"] * (len(header) - 2)]),
        *(_example_row(example, group) for example, group in by_example.items()),
        "",
    ]
    for example, group in by_example.items():
        picture = f"![Return over environment steps of {len(group)} runs of {example}]({_curve(example)})"
        lines += [f"## `examples/{example}.py`", "", picture, ""]
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
        f"{arguments.processes} runs at a time of one thread each, and depend on the machine and on what else it was "
        "doing; the returns depend on the machine only as far as its floating-point arithmetic does."
    )


def _example_row(example: ExampleName, group: Sequence[Result]) -> str:
    returns = [result.mean_return for result in group]
    reached = sum(value >= THRESHOLDS[example] for value in returns)
    return _row(
        [
            f"`{example}`",
            group[0].env,
            f"{group[0].steps:,}",
            f"{THRESHOLDS[example]:g}",
            *(shown(value, example) for value in returns),
            shown(statistics.mean(returns), example),
            f"{reached} of {len(returns)}",
            f"{statistics.mean(result.seconds for result in group):.0f}",
            f"{statistics.mean(result.steps_per_second for result in group):,.0f}",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
