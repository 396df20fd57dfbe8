"""Whatever process of a run is killed, at whatever instant, what was committed is there, and the run goes on."""

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
from tests.support import collecting_to_kill
from tests.support.collecting_to_kill import COMMITTED, EPISODE_STEPS, SHARDS, STORAGE, storage_of
from tests.support.model import ALGORITHM

KILLS = int(os.environ.get("COLLECTING_KILLS", "4"))
"""How often; a few by default, so that the tests stay quick."""
VICTIMS = {
    "learner": None,
    "collector": "ray::CollectionWorker",
    "shard": "ray::ReplayShard",
    "raylet": "raylet/raylet",
}
"""What processes are known by in their command lines; the learner is the one that was started."""
COMMITS_BEFORE, COMMITS_AFTER = 2, 3
LONGEST_SECONDS = 0.5


class Run:
    """A process that runs in a folder."""

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
        """Wait for so many commits, none of which may hold less than the one before."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        while commits:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            for committed in said(line):
                assert committed >= self.committed
                self.committed = committed
                commits -= 1

    def processes(self) -> list[int]:
        """Its own and all that it started, whoever their parents are by now: they work in the same directory."""
        numbers = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        found = [each for each in numbers if place_of(each) == self._place]
        # One that is about to end works nowhere, and still holds its files.
        self._seen |= set(found)
        return found

    def end(self) -> None:
        """Kill what is left of it, and what that starts meanwhile, and wait until all of it has ended."""
        deadline = time.monotonic() + 60
        while (left := self.processes()) or any(is_alive(each) for each in self._seen):
            assert time.monotonic() < deadline
            for each in left:
                with contextlib.suppress(OSError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.05)

    def read_to_the_end(self) -> None:
        """What it said before it was killed."""
        rest, _ = self.process.communicate(timeout=120)
        # The last line may have been cut off.
        self.committed = max([self.committed, *said(rest.rpartition("\n")[0])])


def said(text: str) -> list[int]:
    """How many transitions were committed, of what a run printed."""
    return [int(line.removeprefix(COMMITTED)) for line in text.splitlines() if line.startswith(COMMITTED)]


@pytest.mark.ray
def test_whatever_process_is_killed_what_was_committed_is_there(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder, random, told = tmp_path / "run", np.random.default_rng(0), []
    run = Run(folder)
    try:
        for kill in range(KILLS):
            victim = list(VICTIMS)[kill % len(VICTIMS)]
            run.read(COMMITS_BEFORE)
            time.sleep(LONGEST_SECONDS * random.random())
            os.kill(random.choice(named(victim, run)), signal.SIGKILL)
            if victim in ("collector", "shard"):
                run.read(COMMITS_AFTER)
                told.append({"killed": victim, "committed": run.committed})
                continue
            run.read_to_the_end()
            run.end()
            held = transitions_held(folder)
            told.append({"killed": victim, "committed": run.committed, "held": held})
            assert held >= run.committed
            if not (folder / "checkpoint.pt").exists():
                shutil.rmtree(folder, ignore_errors=True)
            run = Run(folder)
        run.read(COMMITS_AFTER)
    finally:
        run.end()
        run.process.communicate()
    print(json.dumps(told))  # noqa: T201
    assert transitions_held(folder) >= run.committed


def transitions_held(folder: Path) -> int:
    """How many the directories of the shards hold, each of which is what an environment once did."""
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


def named(victim: str, run: Run) -> list[int]:
    """The processes that are what a victim is called."""
    name = VICTIMS[victim]
    processes = run.processes()
    return [run.process.pid] if name is None else [each for each in processes if name in command_line(each)]


def place_of(process: int) -> str:
    """The directory that a process works in; empty where it has ended."""
    try:
        return str(Path(f"/proc/{process}/cwd").readlink())
    except OSError:
        return ""


def is_alive(process: int) -> bool:
    """Whether it, or a thread of it, has not ended; one that nobody waited for holds no files any more."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{process}/task").iterdir())) > 1
    except OSError:
        return False


def command_line(process: int) -> str:
    """What a process was started as, or calls itself; empty where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
