"""Trials of a sweep: each a combination of values that is trained in a process."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pytorchrl.commands.composition.callbacks_and_loggers import make_loggers
from pytorchrl.commands.composition.described_run import DescribedRun, described_run
from pytorchrl.commands.shared import STOPPED
from pytorchrl.experiments.interruption import stopping_signals
from pytorchrl.experiments.runs.run_lock import RunInUseError, RunLock
from pytorchrl.logging import read_evaluations
from pytorchrl.logging.run_labels import LONGEST_TAG
from pytorchrl.logging.writers import Wandb
from storages.persistent.log.lock import InUseError, Lock
from storages.system_calls import NoLocksError

_SECONDS_TO_WAIT = 30.0
"""Longest wait for a trial of a killed sweep, which ends when it notices that its parent process has ended."""
_SECONDS_BETWEEN_LOOKS = 2.0
_LONGEST_NUMBER = 10
"""Of characters in a label."""


@dataclass(frozen=True)
class Trial:
    """A combination of values, with a seed."""

    values: Mapping[str, str]
    seed: int
    folder: Path
    """The folder of the run, ``seed-SEED``, and of the output that it printed."""

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / f"seed-{self.seed}"

    @property
    def options(self) -> list[str]:
        """Options of ``train``."""
        return [f"--{name}={value}" for name, value in self.values.items()]

    def evaluations(self) -> list[tuple[int, float]]:
        """Steps and mean returns of the run's evaluations so far."""
        try:
            return [(int(row["steps"]), row["mean"]) for row in read_evaluations(self.run)]
        except FileNotFoundError:
            return []


def folder_name(values: Mapping[str, str]) -> str:
    """Return a valid folder name for a combination of values."""
    text = ",".join(f"{name}={value}" for name, value in values.items())
    return re.sub(r"[^\w.,=()+-]+", "_", text)


def train(trial: Trial, of_train: Sequence[str], should_prune: Callable[[], bool] = lambda: False) -> int:
    """Train a trial to its end in a process, or go on with it; one that has finished is left as it is.

    Args:
        trial: what is trained.
        of_train: options of ``train`` that all trials have.
        should_prune: called periodically; once it returns True, the process saves a checkpoint and ends.

    Returns:
        The process's exit status.

    Raises:
        RunInUseError: another process trains it.
    """
    trial.folder.mkdir(parents=True, exist_ok=True)
    _wait_until_free(trial.run)
    arguments = [*of_train, *trial.options, "--seeds", str(trial.seed), "--log-dir", str(trial.folder)]
    arguments += ["--parent-process", str(os.getpid())]
    described = described_run(arguments)
    if described.has_finished(trial.seed):
        return 0
    command = [sys.executable, "-m", "pytorchrl", "train", *arguments]
    with (trial.folder / "output.txt").open("ab") as output:
        # A process for each core, rather than all cores for each process.
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | _labels_in_wandb(trial, described)
        with _PROCESSES.started(command, stdout=output, stderr=subprocess.STDOUT, env=environment) as process:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(_SECONDS_BETWEEN_LOOKS)
                    if status not in (0, STOPPED) and trial.run.exists():
                        # Another process may have begun it at the same moment.
                        RunLock(trial.run).release()
                    return status
                if should_prune():
                    process.terminate()
                    return process.wait()


class _Processes:
    """The processes of runs, which a signal to this process ends, after they have saved."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_ending = False

    @contextmanager
    def started(self, command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process, which is known until the context ends."""
        process = subprocess.Popen(command, **settings)
        self._running.add(process)
        try:
            if self._is_ending:
                process.terminate()
            yield process
        finally:
            self._running.discard(process)

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """Within it, Ctrl-C and SIGTERM are passed on to the processes, and raise KeyboardInterrupt here."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._end) for number in stopping_signals()}
        try:
            yield
        finally:
            self._is_ending = False
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        # Schedulers send several; a second Ctrl-C is meant to end the wait for the processes.
        if self._is_ending and number != signal.SIGINT:
            return
        self._is_ending = True
        for process in tuple(self._running):
            process.terminate()
        raise KeyboardInterrupt


_PROCESSES = _Processes()
ended_by_signals = _PROCESSES.ended_by_signals
"""A context in which Ctrl-C and SIGTERM end the runs of trials, which save checkpoints, and raise KeyboardInterrupt."""


def _labels_in_wandb(trial: Trial, described: DescribedRun) -> dict[str, str]:
    """Return variables by which wandb shows what a trial varies; name and tags of the user are extended."""
    given = {name: _short(value) for name, value in trial.values.items()}
    short = {name.rpartition(".")[2]: value for name, value in given.items()}
    varied = short if len(short) == len(given) else given
    # Tags are separated by commas, and those of wandb are not longer.
    tags = [f"{name}={value}".replace(",", " ")[:LONGEST_TAG] for name, value in varied.items()]
    values = ",".join(f"{name}={value}" for name, value in varied.items())
    named = (one.run_name for one in make_loggers(described.settings) or () if isinstance(one, Wandb))
    parts = described.parts
    usual = "-".join(filter(None, (parts.algorithm.name, parts.env_name)))
    title = next(filter(None, named), None) or os.environ.get("WANDB_NAME") or usual
    return {
        "WANDB_NAME": f"{title.replace('/', '-')}-{values}-seed-{trial.seed}",
        "WANDB_TAGS": ",".join([*filter(None, [os.environ.get("WANDB_TAGS")]), *tags]),
        "WANDB_RUN_GROUP": os.environ.get("WANDB_RUN_GROUP") or trial.folder.resolve().parent.name,
        # Within the group, the seeds of a combination.
        "WANDB_JOB_TYPE": os.environ.get("WANDB_JOB_TYPE") or values[:LONGEST_TAG],
    }


def _short(value: str) -> str:
    """Return a value with four digits, if it is a number that a search has drawn with many more."""
    if len(value) <= _LONGEST_NUMBER:
        return value
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def _wait_until_free(run: Path) -> None:
    """Wait until a process of an earlier sweep releases the lock of a run folder.

    Raises:
        RunInUseError: it did not within the time limit.
    """
    if not run.exists():
        return
    until = time.monotonic() + _SECONDS_TO_WAIT
    while True:
        try:
            RunLock(run).release()
        except RunInUseError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
        else:
            return


_LONGEST_WAIT_SECONDS = 60.0
_SECONDS_BETWEEN_TRIES = 0.05


class Claims:
    """Locks of the folders of trials that this process trains; the operating system ends those of a killed process.

    On file systems without locks, every trial is free.
    """

    def __init__(self) -> None:
        self._locks: dict[Path, Lock] = {}
        self._made: set[Path] = set()

    def made_before(self, folder: Path) -> bool:
        """Return whether this process has had the trial, or has it now."""
        return folder in self._made

    def make(self, folder: Path) -> bool:
        """Claim a trial until :meth:`release`; return False where another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with suppress(NoLocksError):
                self._locks[folder] = Lock(folder)
        except InUseError:
            return False
        self._made.add(folder)
        return True

    def release(self, folder: Path) -> None:
        """Let other processes have the trial."""
        if (lock := self._locks.pop(folder, None)) is not None:
            lock.release()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a context with the folder.

    Raises:
        InUseError: another process stayed in it for a minute.
    """
    until, lock = time.monotonic() + _LONGEST_WAIT_SECONDS, None
    with suppress(NoLocksError):
        while lock is None:
            try:
                lock = Lock(folder)
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
