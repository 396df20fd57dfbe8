"""Trials of a sweep: each a combination of values that is trained in a process."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytorchrl.commands.shared import STOPPED
from pytorchrl.experiments.runs.run_lock import RunInUseError, RunLock
from pytorchrl.logging import read_evaluations

_SECONDS_TO_WAIT = 30.0
"""Longest wait for a trial of a killed sweep, which ends when it notices that its parent process has ended."""
_SECONDS_BETWEEN_LOOKS = 2.0


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
    """Train a trial to its end in a process, or go on with it.

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
    command = [sys.executable, "-m", "pytorchrl", "train", *of_train, *trial.options]
    command += ["--seeds", str(trial.seed), "--log-dir", str(trial.folder), "--parent-process", str(os.getpid())]
    with (trial.folder / "output.txt").open("ab") as output:
        # A process for each core, rather than all cores for each process.
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
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
