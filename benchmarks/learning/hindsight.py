"""The gain of hindsight replay: the examples that use it, with and without, in ``docs/hindsight.md``."""

import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.learning.example_runs import ROOT, ExampleName, Result, Run, can_run, results_of
from pytorchrl.terminal import ending_with_its_reader

EXAMPLES: dict[ExampleName, str] = {
    "dqn_her_bitflipping": "mean return: -15 where no pattern is ever found; -10.5 is the best that can be expected",
    "sac_her_pointmaze": "share of episodes that reach their goal",
}
"""What is measured of each."""

SETTINGS: dict[str, dict[str, Any]] = {"with": {}, "without": {"her_ratio": 0.0}}


@dataclass
class Arguments:
    """What to run."""

    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the runs of each."""
    episodes: int = 20
    """Episodes of the evaluation at the end of each run."""
    processes: int = 2
    """Runs at a time, each on one thread."""
    output: Path = ROOT / "docs" / "hindsight.md"
    """The page to write."""
    runs: Path | None = None
    """Where the run folders go; a new folder under runs/ where left out. Finished runs there are used, those of
    ``benchmarks/learning/learning.py`` too."""


def main(arguments: Arguments) -> None:
    """Run everything, then write the table."""
    folder = arguments.runs or Path("runs") / f"hindsight-{time.strftime('%Y%m%d-%H%M%S')}"
    examples = [example for example in EXAMPLES if can_run(example)]
    runs = {
        (example, hindsight, seed): Run(
            example, seed, folder / _folder(example, hindsight, seed), SETTINGS[hindsight], arguments.episodes
        )
        for example in examples
        for hindsight in SETTINGS
        for seed in arguments.seeds
    }
    results: dict[Path, Result] = {}
    for run, result in results_of(list(runs.values()), arguments.processes):
        results[run.log_dir] = result
        print(f"{run.log_dir.name}: {result.mean_return:.2f}", flush=True)
    rows = [
        _row(example, hindsight, [results[runs[example, hindsight, seed].log_dir] for seed in arguments.seeds])
        for example in examples
        for hindsight in SETTINGS
    ]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(_page(rows, arguments), encoding="utf-8")
    print(f"Table: {arguments.output}")


def _folder(example: ExampleName, hindsight: str, seed: int) -> str:
    return f"{example}-{seed}" if hindsight == "with" else f"{example}-{hindsight}-hindsight-{seed}"


def _row(example: ExampleName, hindsight: str, results: Sequence[Result]) -> list[str]:
    returns = [result.mean_return for result in results]
    figures = [f"{value:.2f}" for value in (*returns, statistics.mean(returns))]
    return [f"`{example}`", results[0].env, f"{results[0].steps:,}", hindsight, *figures, EXAMPLES[example]]


def _page(rows: list[list[str]], arguments: Arguments) -> str:
    how = (
        "The examples that replay with hindsight as they are, and with `her_ratio=0`, which is the same replay without "
        f"it; nothing else differs. Each figure is of {arguments.episodes} episodes of the policy that a run ended "
        "with, acting as well as it can, in environments seeded apart from training. The maze's starts all lie at one "
        "end of its U and its goals at the other; where they lie anywhere, near each other too, replay without "
        "hindsight finds most of them as well."
    )
    header = ["example", "environment", "steps", "hindsight", *(f"seed {seed}" for seed in arguments.seeds)]
    header += ["mean", "measured"]
    rule = ["---", "---", "---:", "---", *["---:"] * (len(arguments.seeds) + 1), "---"]
    lines = [
        "# Effect of hindsight experience replay",
        "",
        "Written by `benchmarks/learning/hindsight.py`.",
        "",
        textwrap.fill(how, 120),
        "",
        *(f"| {' | '.join(row)} |" for row in (header, rule, *rows)),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
