"""Processes of a distributed run are killed at random: no committed transition is lost, and the run continues."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from storages import PERBuffer
from storages.sharded.replay_shard import directory_of_shard
from storages.transition import OBS, OBS2
from tests.pytorchrl.scheme.distributed import collecting_to_kill
from tests.pytorchrl.scheme.distributed.collecting_to_kill import COMMITTED, EPISODE_STEPS, SHARDS, STORAGE
from tests.support.model import ALGORITHM
from tests.support.profiles import FULL
from tests.support.training_to_kill import storage_of

KILLS = int(os.environ.get("COLLECTING_KILLS", "4"))
"""Number of kills; few by default, so that the tests stay quick."""
VICTIMS = {
    "learner": None,
    "collector": "ray::CollectionWorker",
    "shard": "ray::ReplayShard",
    "raylet": "raylet/raylet",
}
"""Kinds of processes, and words of their command lines; the learner is the process that was started."""
COMMITS_BEFORE, COMMITS_AFTER = 2, 3
LONGEST_SECONDS = 0.5


class Run:
    """The process of a learner, and the processes that it started."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, collecting_to_kill.__file__, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder.parent,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._place = str(folder.parent)
        self._seen = set[int]()
        self.committed = 0

    def read(self, commits: int) -> None:
        """Wait for a number of commits, each with at least as many transitions as the one before."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        while commits:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            for committed in committed_counts(line):
                assert committed >= self.committed
                self.committed = committed
                commits -= 1

    def processes(self) -> list[int]:
        """PIDs of all processes of the run, orphans too: those whose working directory is the run's."""
        numbers = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        found = [each for each in numbers if working_directory_of(each) == self._place]
        # An exiting process no longer has a working directory, but may still hold its files.
        self._seen |= set(found)
        return found

    def end(self) -> None:
        """Kill all processes of the run, also those started meanwhile, and wait until they have exited."""
        deadline = time.monotonic() + 60
        while (left := self.processes()) or any(is_alive(each) for each in self._seen):
            assert time.monotonic() < deadline
            for each in left:
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.05)

    def read_to_the_end(self) -> None:
        """Read the rest of the output of a process that was killed."""
        rest, _ = self.process.communicate(timeout=120)
        # The last line may have been cut off.
        self.committed = max([self.committed, *committed_counts(rest.rpartition("\n")[0])])


def committed_counts(text: str) -> list[int]:
    """Numbers of committed transitions in the output of a run."""
    return [int(line.removeprefix(COMMITTED)) for line in text.splitlines() if line.startswith(COMMITTED)]


@FULL
@pytest.mark.ray
def test_commits_survive_a_kill_of_any_process(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder, random, outcomes = tmp_path / "run", np.random.default_rng(0), []
    run = Run(folder)
    try:
        for kill in range(KILLS):
            victim = list(VICTIMS)[kill % len(VICTIMS)]
            run.read(COMMITS_BEFORE)
            time.sleep(LONGEST_SECONDS * random.random())
            os.kill(random.choice(processes_of(victim, run)), signal.SIGKILL)
            if victim in ("collector", "shard"):
                run.read(COMMITS_AFTER)
                outcomes.append({"killed": victim, "committed": run.committed})
                continue
            run.read_to_the_end()
            run.end()
            held = transitions_held(folder)
            outcomes.append({"killed": victim, "committed": run.committed, "held": held})
            assert held >= run.committed
            if not (folder / "checkpoint.pt").exists():
                shutil.rmtree(folder, ignore_errors=True)
            run = Run(folder)
        run.read(COMMITS_AFTER)
    finally:
        run.end()
        run.process.communicate()
    print(json.dumps(outcomes))  # noqa: T201
    assert transitions_held(folder) >= run.committed


def transitions_held(folder: Path) -> int:
    """Number of transitions in the directories of the shards; each must be possible in the environment."""
    held = 0
    for number in range(SHARDS):
        directory = directory_of_shard(storage_of(folder), number)
        if not directory.exists():
            continue
        shard = PERBuffer.create_factory(**STORAGE | {"size": STORAGE["size"] // SHARDS}, directory=directory)(
            "cpu", None, ALGORITHM, None
        )
        if len(shard):
            data = shard.get_all_buffer_data()
            counted = data[OBS][..., 0]
            assert torch.equal(data[OBS2][..., 0], counted + 1)
            assert counted.min() >= 0
            assert counted.max() < EPISODE_STEPS
        held += len(shard)
        shard.close()
    return held


def processes_of(victim: str, run: Run) -> list[int]:
    """PIDs of the processes of one kind."""
    name = VICTIMS[victim]
    processes = run.processes()
    return [run.process.pid] if name is None else [each for each in processes if name in command_line(each)]


def working_directory_of(process: int) -> str:
    """Working directory of a process; empty if it has exited."""
    try:
        return str(Path(f"/proc/{process}/cwd").readlink())
    except OSError:
        return ""


def is_alive(process: int) -> bool:
    """Whether a process or one of its threads runs; a zombie without threads holds no files."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{process}/task").iterdir())) > 1
    except OSError:
        return False


def command_line(process: int) -> str:
    """Command line of a process; empty if it has exited."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
