"""What the examples learn: every example with three seeds, as a table and curves in ``docs/learning.md``.

The figures are means over episodes of an evaluation whose environments no run has met before, with the policy that a
run ended with, acting as well as it can.
"""

import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeAlias

# `import storages` is to find the package, not the benchmark beside this file.
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import tyro

import pytorchrl as prl
from pytorchrl.scheme import evaluate

_ROOT = Path(__file__).resolve().parents[1]

ExampleName: TypeAlias = Literal[
    "dqn_cartpole",
    "dqn_her_bitflipping",
    "dqn_memory_cartpole",
    "ppo_cartpole",
    "ppo_memory_cartpole",
    "sac_memory_pendulum",
    "sac_pendulum",
]

THRESHOLDS: dict[ExampleName, float] = {
    "ppo_cartpole": 475.0,
    "dqn_cartpole": 450.0,
    "sac_pendulum": -160.0,
    "dqn_her_bitflipping": -11.5,
    "ppo_memory_cartpole": 400.0,
    "dqn_memory_cartpole": 400.0,
    "sac_memory_pendulum": -300.0,
}
"""Mean return that every seed of an example is to reach."""

# Environments of the evaluation here follow from this and the run's seed, and from nothing that training used.
_EVALUATION_SEED = 20_000


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
    docs: Path = _ROOT / "docs"
    """Where ``learning.md`` and the curves go."""
    runs: Path | None = None
    """Where the run folders go; a new folder under runs/ where left out."""


@dataclass(frozen=True)
class Result:
    """What became of one run."""

    example: ExampleName
    env: str
    seed: int
    steps: int
    mean_return: float
    """Of the evaluation's episodes."""
    seconds: float
    """From composition to curve, the run's own evaluations included."""
    steps_per_second: float
    """Of training alone."""
    log_dir: Path


def main(arguments: Arguments) -> None:
    """Run everything, then write the table and draw the curves."""
    runs = arguments.runs or Path("runs") / f"learning-{time.strftime('%Y%m%d-%H%M%S')}"
    examples: list[ExampleName] = [arguments.only] if arguments.only else list(THRESHOLDS)
    results: list[Result] = []
    # Spawned, not forked: a fork of a process that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        futures: list[Future[Result]] = [
            pool.submit(_run, example, seed, arguments.target_steps, arguments.episodes, runs)
            for example in examples
            for seed in arguments.seeds
        ]
        for future in as_completed(futures):
            results.append(future.result())
            print(_line(results[-1]), flush=True)
    results.sort(key=lambda result: (examples.index(result.example), arguments.seeds.index(result.seed)))
    by_example = {example: [result for result in results if result.example == example] for example in examples}
    arguments.docs.mkdir(parents=True, exist_ok=True)
    for example, group in by_example.items():
        prl.plot_runs([result.log_dir for result in group], arguments.docs / _curve(example))
    page = arguments.docs / "learning.md"
    page.write_text(_page(by_example, arguments), encoding="utf-8")
    print(f"Table and curves: {page}")
    print(f"Run folders:      {runs}")


def _run(example: ExampleName, seed: int, target_steps: int | None, episodes: int, runs: Path) -> Result:
    """Train and evaluate one seed, in a process of its own."""
    torch.set_num_threads(1)
    module = _load(example)
    settings = {} if target_steps is None else {"target_steps": target_steps}
    arguments = module.Arguments(seed=seed, log_dir=runs / f"{example}-{seed}", **settings)
    started = time.perf_counter()
    # Several runs share one terminal, where one display would draw over the other.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        learner: prl.Learner = module.train(arguments)
    seconds = time.perf_counter() - started
    if not learner.done():
        raise RuntimeError(f"{example}, seed {seed}, was stopped at {learner.scheme.steps:,} steps")
    # One episode an environment: each begins with a seed of its own.
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=episodes)()
    evaluation = evaluate(learner.scheme.algorithm, envs, episodes, np.random.SeedSequence([_EVALUATION_SEED, seed]))
    envs.close()
    return Result(
        example=example,
        env=arguments.env,
        seed=seed,
        steps=learner.scheme.steps,
        mean_return=evaluation.mean_return,
        seconds=seconds,
        steps_per_second=learner.scheme.steps / learner.get_metrics()["seconds"],
        log_dir=learner.log_dir,
    )


def _load(example: ExampleName) -> ModuleType:
    """The example's module, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location(example, _ROOT / "examples" / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[example] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _line(result: Result) -> str:
    met = "reached" if result.mean_return >= THRESHOLDS[result.example] else "missed"
    return (
        f"{result.example}, seed {result.seed}: {result.mean_return:.1f} after {result.steps:,} steps in "
        f"{result.seconds:.0f} s ({THRESHOLDS[result.example]:g} {met})"
    )


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
        "environments seeded apart from training and from the evaluations during it. `seconds` is a run from its "
        "composition to its curve, evaluations included; `steps/s` is of training alone. Both are means over the "
        f"seeds, with {arguments.processes} runs at a time of one thread each, and depend on the machine; the returns "
        "depend on it only as far as its floating-point arithmetic does."
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
            *(f"{value:.1f}" for value in returns),
            f"{statistics.mean(returns):.1f}",
            f"{reached} of {len(returns)}",
            f"{statistics.mean(result.seconds for result in group):.0f}",
            f"{statistics.mean(result.steps_per_second for result in group):,.0f}",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
