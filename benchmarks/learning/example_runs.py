"""One run of an example: trained as by its script, and evaluated with seeds that training does not use."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

import pytorchrl as prl
from pytorchrl.scheme import evaluate

ROOT = Path(__file__).resolve().parents[2]

ExampleName: TypeAlias = Literal[
    "bc_cartpole",
    "bcq_pendulum",
    "dqn_cartpole",
    "dqn_her_bitflipping",
    "dqn_memory_cartpole",
    "gail_cartpole",
    "ppo_cartpole",
    "ppo_memory_cartpole",
    "iqn_cartpole",
    "qrdqn_cartpole",
    "reinforce_cartpole",
    "sac_her_pointmaze",
    "sac_memory_pendulum",
    "sac_pendulum",
    "td3_pendulum",
    "trpo_cartpole",
]

_NEEDS: Mapping[ExampleName, str] = {"sac_her_pointmaze": "gymnasium_robotics"}

# The evaluation's environments are seeded by this and the run's seed, independently of training.
_EVALUATION_SEED = 20_000


@dataclass(frozen=True)
class Run:
    """A run of an example."""

    example: ExampleName
    seed: int
    log_dir: Path
    """The run folder. Where it holds a finished run, that one is taken."""
    settings: Mapping[str, Any]
    """Hyper-parameters that differ from the example's own."""
    episodes: int
    """Episodes of the evaluation at the end."""


@dataclass(frozen=True)
class Result:
    """Result of a run."""

    env: str
    steps: int
    mean_return: float
    """Mean return of the evaluation's episodes."""
    seconds: float
    """From composition to curve, the run's own evaluations included."""
    steps_per_second: float
    """Environment steps per second of training alone."""


def can_run(example: ExampleName) -> bool:
    """Whether the packages that the example needs are installed."""
    return example not in _NEEDS or importlib.util.find_spec(_NEEDS[example]) is not None


def results_of(runs: Sequence[Run], processes: int) -> Iterator[tuple[Run, Result]]:
    """Make the runs, some at a time, each in a process of one thread; yield them as they finish."""
    # Spawned, not forked: a fork of a process that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures: dict[Future[Result], Run] = {pool.submit(_result_of, run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _result_of(run: Run) -> Result:
    finished = run.log_dir / "example_run.json"
    if finished.exists():
        return Result(**json.loads(finished.read_text(encoding="utf-8")))
    torch.set_num_threads(1)
    module = _load(run.example)
    arguments = module.Arguments(seed=run.seed, log_dir=run.log_dir, **run.settings)
    started = time.perf_counter()
    # Several runs share one terminal, where one display would draw over the other.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        learner: prl.Learner = module.train(arguments)
    seconds = time.perf_counter() - started
    if not learner.done():
        raise RuntimeError(f"{run.example}, seed {run.seed}, was stopped at {learner.scheme.steps:,} steps")
    # One episode an environment: each begins with a seed of its own.
    config = learner.scheme.config["test_envs"] or learner.scheme.config["train_envs"]
    envs = prl.VecEnv.create_factory(**config["hyper_parameters"] | {"num_envs": run.episodes})()
    seeds = np.random.SeedSequence([_EVALUATION_SEED, run.seed])
    evaluation = evaluate(learner.scheme.algorithm, envs, run.episodes, seeds)
    envs.close()
    result = Result(
        env=arguments.env,
        steps=learner.scheme.steps,
        mean_return=evaluation.mean_return,
        seconds=seconds,
        steps_per_second=learner.scheme.steps / learner.get_metrics()["seconds"],
    )
    finished.write_text(json.dumps(asdict(result)), encoding="utf-8")
    return result


def _load(example: ExampleName) -> ModuleType:
    """The example's module, which is a script and in no package."""
    spec = importlib.util.spec_from_file_location(example, ROOT / "examples" / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[example] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module
