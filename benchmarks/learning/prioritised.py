"""Steps until DQN learns CartPole, with uniform and with prioritised 3-step replay: ``docs/prioritised.md``.

The same network, batches and schedule of updates for both, those of ``examples/dqn_cartpole.py``; the figure is the
number of environment steps until the mean return of an evaluation first reaches 450.
"""

import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import textwrap
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro

import pytorchrl as prl
from pytorchrl.terminal import ending_with_its_reader

_ROOT = Path(__file__).resolve().parents[2]
_THRESHOLD = 450.0

STORAGES = {
    "plain replay": prl.ReplayBuffer.create_factory(size=50_000),
    "3 steps": prl.NStepReplayBuffer.create_factory(size=50_000, n_step=3),
    "priorities": prl.PERBuffer.create_factory(
        size=50_000, alpha=0.6, beta=prl.LinearSchedule(0.4, 1.0), epsilon=1e-2, default_error="largest"
    ),
    "priorities and 3 steps": prl.PERBuffer.create_factory(
        size=50_000, n_step=3, alpha=0.6, beta=prl.LinearSchedule(0.4, 1.0), epsilon=1e-2, default_error="largest"
    ),
}


@dataclass
class Arguments:
    """What to run."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Seeds of the runs of each storage."""
    target_steps: int = 60_000
    """Environment steps after which a run that has not reached the return is ended."""
    test_every: int = 1_000
    """Environment steps between evaluations."""
    episodes: int = 20
    """Episodes of an evaluation."""
    processes: int = 2
    """Runs at a time, each on one thread."""
    output: Path = _ROOT / "docs" / "prioritised.md"
    """The page to write."""


def main(arguments: Arguments) -> None:
    """Run everything, then write the table."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        futures = {
            name: [pool.submit(_steps_until_learnt, name, seed, arguments) for seed in arguments.seeds]
            for name in STORAGES
        }
        steps = {}
        for name, runs in futures.items():
            steps[name] = [run.result() for run in runs]
            print(f"{name}: {', '.join(map(_shown, steps[name]))}", flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(_page(steps, arguments), encoding="utf-8")
    print(f"Table: {arguments.output}")


def _steps_until_learnt(name: str, seed: int, arguments: Arguments) -> int | None:
    """Return the environment steps until an evaluation reaches the threshold; None where none does."""
    torch.set_num_threads(1)
    scheme = prl.Scheme(
        prl.DQN.create_factory(
            lr=prl.LinearSchedule(5e-4, 0.0),
            update_every=2,
            test_every=arguments.test_every,
            num_test_episodes=arguments.episodes,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        STORAGES[name],
        prl.VecEnv.create_factory("CartPole-v1"),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=arguments.episodes),
        seed=seed,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        learner = prl.Learner(scheme, arguments.target_steps, Path(folder) / "run")
        learnt = None
        while learnt is None and not learner.done():
            learner.step()
            if learner.get_metrics().get("test/return", 0.0) >= _THRESHOLD:
                learnt = scheme.steps
        learner.close()
    return learnt


def _page(steps: dict[str, list[int | None]], arguments: Arguments) -> str:
    how = (
        f"Environment steps until the mean return of {arguments.episodes} episodes, evaluated every "
        f"{arguments.test_every:,} steps, first reached {_THRESHOLD:g}, of DQN on CartPole-v1 with the hyper-"
        f"parameters of `examples/dqn_cartpole.py`; a run was given up after {arguments.target_steps:,}, and then "
        "counts as that. It need not stay there: a policy that is good early may be so by luck, and fall back. "
        "Priorities: alpha 0.6, beta from 0.4 to 1, epsilon 0.01, new transitions with the largest "
        "error so far."
    )
    header = ["replay", *(f"seed {seed}" for seed in arguments.seeds), "median"]
    rows = [
        [name, *map(_shown, found), f"{statistics.median(s or arguments.target_steps for s in found):,.0f}"]
        for name, found in steps.items()
    ]
    lines = [
        "# Sample efficiency of prioritised replay",
        "",
        "Written by `benchmarks/learning/prioritised.py`.",
        "",
        textwrap.fill(how, 120),
        "",
        *(f"| {' | '.join(row)} |" for row in (header, ["---", *["---:"] * (len(header) - 1)], *rows)),
        "",
    ]
    return "\n".join(lines)


def _shown(steps: int | None) -> str:
    return "never" if steps is None else f"{steps:,}"


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
