"""One run of an algorithm or of a peer for a page that compares what they learn, and many of them in processes."""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

import pytorchrl as prl
from benchmarks.learning.learning_pages import PAGES
from benchmarks.learning.learning_task import Task
from pytorchrl.scheme import evaluate
from storages.persistent.log.files import write_atomically

FINAL_PART = 0.1
"""Of a run; the training episodes that end in it are counted."""

# Environments of the evaluation at the end follow from this and the run's seed, and from nothing that training used.
_EVALUATION_SEED = 20_000
_SECONDS_BETWEEN_LOOKS = 1.0
_RECORDS = 100
_RECORDS_OF_A_CHECKPOINT = 10
_KEPT_COLUMNS = ("steps", "train/return", "train/episodes")


@dataclass(frozen=True)
class Run:
    """What to run."""

    page: str
    task_name: str
    algorithm: str
    seed: int
    target_steps: int
    folder: Path
    """The run folder. Where it holds a finished run, that one is taken; one that was stopped is continued."""
    kept_file: Path
    """What a finished run is known by when its folder is gone."""

    @property
    def task(self) -> Task:
        """What it is a run of."""
        return PAGES[self.page].tasks[self.task_name]

    @property
    def is_of_the_task(self) -> bool:
        """Whether its seed is one of those that the task is run with."""
        return self.seed in self.task.seeds

    @property
    def name(self) -> str:
        """In what is printed."""
        return f"{self.task_name}, {self.algorithm}, seed {self.seed}"

    @property
    def missing_package(self) -> str | None:
        """What it needs and is not installed."""
        needed = (self.task.package, self.task.peers.get(self.algorithm))
        return next((package for package in needed if package and importlib.util.find_spec(package) is None), None)

    @property
    def result_file(self) -> Path:
        """Written when the run has finished."""
        return self.folder / "learning_run.json"

    @property
    def result(self) -> "Result | None":
        """None while the run has not finished."""
        if self.result_file.exists():
            return Result(**json.loads(self.result_file.read_text(encoding="utf-8")))
        if self.kept_file.exists():
            return Result(**json.loads(self.kept_file.read_text(encoding="utf-8"))["result"])
        return None

    @property
    def records(self) -> list[dict[str, float]]:
        """Returns of training, by environment steps."""
        metrics = self.folder / "metrics.jsonl"
        if metrics.exists():
            return prl.read_metrics(metrics)
        if self.kept_file.exists():
            kept = json.loads(self.kept_file.read_text(encoding="utf-8"))["training"]
            return [dict(zip(_KEPT_COLUMNS, row, strict=True)) for row in kept]
        return []

    def keep(self) -> None:
        """Write the result and the curve of a finished run where they outlast its folder."""
        if self.result is None or self.kept_file.exists():
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


@dataclass(frozen=True)
class Result:
    """What became of it."""

    steps: int
    greedy_return: float
    """Mean over the episodes of the evaluation at the end, of the greedy policy."""
    training_return: float | None
    """Mean over the training episodes that ended in the last part of the run."""
    steps_per_second: float | None
    """Environment steps of training for each second of processor time, since the run was last continued."""


def results_of(runs: Sequence[Run], processes: int, seconds_between_reports: float = 60.0) -> Iterator[Run]:
    """Make the runs, some at a time, each in a process of one thread.

    Prints on the way how far those have come that are being made.

    Yields:
        Each run when its process has ended. It has no result where an error ended it, which is printed there.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the runs that were being made have saved where they are.
    """
    # Spawned, not forked: a fork of a process that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    waiting, running = list(runs), dict[SpawnProcess, Run]()
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


def _make_in_process(run: Run) -> None:
    # Ctrl-C reaches the parent alone, which then asks each process once to save where it is.
    os.setpgrp()
    # Several runs share one terminal, where one display would draw over the other.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        make_run(run)


def make_run(run: Run) -> None:
    """Train from where the run is, and write its result; nothing is written where it was stopped."""
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
        shutil.rmtree(run.folder, ignore_errors=True)  # what was killed before it had saved anything
        learner = prl.Learner(scheme, run.target_steps, run.folder, log_every=_steps_of_a_record(run))
    begun_at, begun = scheme.steps, time.process_time()
    finished = learner.run(checkpoint_every=_steps_of_a_record(run) * _RECORDS_OF_A_CHECKPOINT)
    seconds, steps = time.process_time() - begun, scheme.steps - begun_at
    learner.close()
    if not finished:
        return None
    with contextlib.closing(task.envs(task.episodes)()) as envs:
        evaluation = evaluate(scheme.algorithm, envs, task.episodes, _evaluation_seed(run))
    return evaluation.mean_return, steps / seconds if steps else None


def _train_peer(run: Run) -> tuple[float, float | None]:
    task = run.task
    train_peer = importlib.import_module(task.peer_module).train_peer  # needs packages that ours do without
    shutil.rmtree(run.folder, ignore_errors=True)  # a peer does not continue where it was: it begins anew
    run.folder.mkdir(parents=True)
    begun = time.process_time()
    env = gym.make(task.env, **task.env_kwargs)
    policy = train_peer(run.algorithm, env, run.seed, run.target_steps, run.folder, _steps_of_a_record(run))
    seconds = time.process_time() - begun
    with contextlib.closing(task.envs(task.episodes)()) as envs:
        greedy_return = _mean_return(policy, envs, _evaluation_seed(run))
    return greedy_return, run.target_steps / seconds


def _mean_return(
    policy: Callable[[NDArray[Any]], NDArray[Any]], envs: prl.VecEnv, seed: np.random.SeedSequence
) -> float:
    """Over one episode of each environment."""
    returns = dict[int, float]()
    observation = envs.reset(seed)
    while len(returns) < envs.num_envs:
        observation = envs.step(policy(observation)).observation
        for record in envs.finished_episodes:
            returns.setdefault(record.environment, record.episode_return)
    return float(np.mean(list(returns.values())))


def _training_return(run: Run) -> float | None:
    """Mean over the episodes that ended in the final part; None where none did."""
    records = prl.read_metrics(run.folder / "metrics.jsonl")
    first = (1 - FINAL_PART) * run.target_steps
    final = [record for record in records if record["steps"] > first and record.get("train/episodes")]
    episodes = [record["train/episodes"] for record in final]
    return float(np.average([record["train/return"] for record in final], weights=episodes)) if final else None


def _evaluation_seed(run: Run) -> np.random.SeedSequence:
    return np.random.SeedSequence([_EVALUATION_SEED, run.seed])


def _steps_of_a_record(run: Run) -> int:
    return max(run.target_steps // _RECORDS, 1)
