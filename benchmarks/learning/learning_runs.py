"""Runs of algorithms and peers for a page that compares their returns, in processes."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

import pytorchrl as prl
from benchmarks.learning.atari_100k import ATARI_100K
from benchmarks.learning.bodies_compositions import BODIES
from benchmarks.learning.learning_task import Page, Task
from benchmarks.learning.million_compositions import MILLION
from benchmarks.learning.minatar_compositions import MINATAR
from benchmarks.learning.models_compositions import MODELS
from benchmarks.learning.mujoco_compositions import MUJOCO
from benchmarks.learning.policies_compositions import POLICIES
from benchmarks.learning.strategies_compositions import STRATEGIES_PAGE
from benchmarks.learning.values_compositions import VALUES
from pytorchrl.scheme import evaluate
from storages.files import write_atomically

FINAL_PART = 0.1
"""Last share of a run, whose training episodes are counted."""

# The evaluation's environments are seeded by this and the run's seed, independently of training.
_EVALUATION_SEED = 20_000
_SECONDS_BETWEEN_LOOKS = 1.0
_RECORDS = 100
_RECORDS_OF_A_CHECKPOINT = 10
_KEPT_COLUMNS = ("steps", "train/return", "train/episodes")


@dataclass(frozen=True)
class Run:
    """A run of an algorithm or a peer."""

    page: str
    task_name: str
    algorithm: str
    seed: int
    target_steps: int
    folder: Path
    """The run folder. A finished run in it is used; one that was stopped is continued."""
    kept_file: Path
    """File with the result of a finished run, which is kept when the run folder is gone."""

    @property
    def task(self) -> Task:
        """The task of the run."""
        return PAGES[self.page].tasks[self.task_name]

    @property
    def is_of_the_task(self) -> bool:
        """Whether its seed is one of those that the task is run with."""
        return self.seed in self.task.seeds

    @property
    def name(self) -> str:
        """Name in printed texts."""
        return f"{self.task_name}, {self.algorithm}, seed {self.seed}"

    @property
    def missing_package(self) -> str | None:
        """The package that it needs and that is not installed."""
        needed = (self.task.package, self.task.peers.get(self.algorithm))
        return next((package for package in needed if package and importlib.util.find_spec(package) is None), None)

    @property
    def result_file(self) -> Path:
        """File that is written when the run has finished."""
        return self.folder / "learning_run.json"

    @property
    def result(self) -> "Result | None":
        """Result of the run; None while it has not finished, or where it has fewer steps than the task has now."""
        found = None
        if self.result_file.exists():
            found = Result(**json.loads(self.result_file.read_text(encoding="utf-8")))
        elif self.kept_file.exists():
            found = Result(**json.loads(self.kept_file.read_text(encoding="utf-8"))["result"])
        return None if found is None or found.steps < self.target_steps else found

    @property
    def records(self) -> list[dict[str, float]]:
        """Return records of training returns, by environment steps."""
        metrics = self.folder / "metrics.jsonl"
        if metrics.exists():
            return prl.read_metrics(metrics)
        if self.kept_file.exists():
            kept = json.loads(self.kept_file.read_text(encoding="utf-8"))["training"]
            return [dict(zip(_KEPT_COLUMNS, row, strict=True)) for row in kept]
        return []

    def keep(self) -> None:
        """Write the result and the curve of a finished run into its ``kept_file``."""
        if self.result is None or not self.result_file.exists():
            return
        rows = [[record[name] for name in _KEPT_COLUMNS] for record in self.records if "train/return" in record]
        kept = {"result": asdict(self.result), "training": rows}
        self.kept_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.kept_file, json.dumps(kept).encode())

    @property
    def steps(self) -> int:
        """Environment steps up to the last record."""
        records = self.records
        return int(records[-1]["steps"]) if records else 0

    def make(self) -> None:
        """Train or resume the run, and write its result unless it was stopped."""
        make_run(self)


@dataclass(frozen=True)
class Result:
    """Result of a run."""

    steps: int
    greedy_return: float
    """Mean over the episodes of the evaluation at the end, of the greedy policy."""
    training_return: float | None
    """Mean over the training episodes that ended in the last part of the run."""
    steps_per_second: float | None
    """Environment steps of training for each second of processor time, since the run was last continued."""


def returns_of(runs: Sequence[Run], algorithm: str) -> list[float]:
    """Return the greedy returns of an algorithm's finished runs."""
    results = [run.result for run in runs if run.algorithm == algorithm]
    return [result.greedy_return for result in results if result is not None]


class Makeable(Protocol):
    """A run that a process can make."""

    @property
    def name(self) -> str:
        """Name in printed texts."""

    @property
    def steps(self) -> int:
        """Environment steps so far."""

    @property
    def target_steps(self) -> int:
        """Environment steps of the whole run."""

    def make(self) -> None:
        """Train or resume the run, and write its result unless it was stopped."""


AnyRun = TypeVar("AnyRun", bound=Makeable)


def results_of(runs: Sequence[AnyRun], processes: int, seconds_between_reports: float = 60.0) -> Iterator[AnyRun]:
    """Make the runs, some at a time, each in a process of one thread.

    Prints the progress of running ones.

    Yields:
        Each run when its process has ended. It has no result if an error ended it, which is printed.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the running ones have saved checkpoints.
    """
    # Spawned, not forked: a fork of a process that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    waiting, running = list(runs), dict[SpawnProcess, AnyRun]()
    reported = time.monotonic()
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                run = waiting.pop(0)
                process = context.Process(target=_make_in_process, args=(run,), name=run.name)
                process.start()
                running[process] = run
            wait([process.sentinel for process in running], timeout=_SECONDS_BETWEEN_LOOKS)
            for process in [process for process in running if not process.is_alive()]:
                yield running.pop(process)
            if time.monotonic() - reported > seconds_between_reports:
                reported = time.monotonic()
                for run in running.values():
                    print(f"  {run.name}: {run.steps:,} of {run.target_steps:,} steps", flush=True)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _make_in_process(run: Makeable) -> None:
    # Ctrl-C reaches only the parent, which then asks each process once to save a checkpoint.
    os.setpgrp()
    # Several runs share one terminal, where one display would draw over the other.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        run.make()


def make_run(run: Run) -> None:
    """Train or resume a run, and write its result unless it was stopped."""
    torch.set_num_threads(1)
    train = _train_peer if run.algorithm in run.task.peers else _train
    trained = train(run)
    if trained is not None:
        greedy_return, steps_per_second = trained
        result = Result(run.target_steps, greedy_return, _training_return(run), steps_per_second)
        write_atomically(run.result_file, json.dumps(asdict(result)).encode())


def _train(run: Run) -> tuple[float, float | None] | None:
    """Return of the greedy policy, and steps per second; None where the run was stopped."""
    task = run.task
    composition = task.compositions[run.algorithm]
    envs = task.envs(composition.num_envs, composition.wrappers)
    scheme = prl.Scheme(**composition.compose(), train_envs_factory=envs, seed=run.seed)
    if (run.folder / "checkpoint.pt").exists():
        learner = prl.Learner.resume(run.folder, scheme=scheme)
    else:
        shutil.rmtree(run.folder, ignore_errors=True)  # a run that was killed before its first checkpoint
        learner = prl.Learner(
            scheme,
            run.target_steps,
            run.folder,
            log_every=_steps_of_a_record(run),
            callbacks=composition.callbacks(),
        )
    begun_at, begun = scheme.steps, time.process_time()
    finished = learner.run(checkpoint_every=_steps_of_a_record(run) * _RECORDS_OF_A_CHECKPOINT)
    seconds, steps = time.process_time() - begun, scheme.steps - begun_at
    learner.close()
    if not finished:
        return None
    with task.envs(task.episodes)() as envs:
        evaluation = evaluate(scheme.algorithm, envs, task.episodes, _evaluation_seed(run))
    return evaluation.mean_return, steps / seconds if steps else None


def _train_peer(run: Run) -> tuple[float, float | None]:
    task = run.task
    train_peer = importlib.import_module(task.peer_module).train_peer  # needs further packages
    shutil.rmtree(run.folder, ignore_errors=True)  # a peer cannot resume: it begins again
    run.folder.mkdir(parents=True)
    begun = time.process_time()
    env = gym.make(task.env, **task.env_kwargs)
    policy = train_peer(run.algorithm, env, run.seed, run.target_steps, run.folder, _steps_of_a_record(run))
    seconds = time.process_time() - begun
    with task.envs(task.episodes)() as envs:
        greedy_return = _mean_return(policy, envs, _evaluation_seed(run))
    return greedy_return, run.target_steps / seconds


def _mean_return(
    policy: Callable[[NDArray[Any]], NDArray[Any]], envs: prl.VecEnv, seed: np.random.SeedSequence
) -> float:
    """Return the mean return over one episode of each environment."""
    returns = dict[int, float]()
    observation = envs.reset(seed)
    while len(returns) < envs.num_envs:
        observation = envs.step(policy(observation)).observation
        for record in envs.finished_episodes:
            returns.setdefault(record.environment, record.episode_return)
    return float(np.mean(list(returns.values())))


def _training_return(run: Run) -> float | None:
    """Return the mean return of episodes that ended in the final part; None where none did."""
    records = prl.read_metrics(run.folder / "metrics.jsonl")
    first = (1 - FINAL_PART) * run.target_steps
    final = [record for record in records if record["steps"] > first and record.get("train/episodes")]
    episodes = [record["train/episodes"] for record in final]
    return float(np.average([record["train/return"] for record in final], weights=episodes)) if final else None


def _evaluation_seed(run: Run) -> np.random.SeedSequence:
    return np.random.SeedSequence([_EVALUATION_SEED, run.seed])


def _steps_of_a_record(run: Run) -> int:
    return max(run.target_steps // _RECORDS, 1)


PAGES: Mapping[str, Page] = {
    "atari-100k": ATARI_100K,
    "bodies": BODIES,
    "latent-models": MODELS,
    "minatar": MINATAR,
    "mujoco": MUJOCO,
    "mujoco-million": MILLION,
    "policy-learning": POLICIES,
    "replay-strategies": STRATEGIES_PAGE,
    "values": VALUES,
}
