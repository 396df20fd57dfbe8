"""Kills processes that insert into a buffer of episodes on disk, at random instants, and checks what is left.

A script, because it forks: ``python killing_episodic.py <folder> <kills> <seed>`` prints figures as a line of JSON.
Insertions depend only on the number of the step, so the model can be brought to any step. The processes are killed
while they open the buffer, insert, write a checkpoint, or go back to the last complete checkpoint.
"""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from storages import PersistentEpisodicBuffer
from tests.storages.persistent import killing
from tests.storages.persistent.forked import SharedNumbers, live_until_killed
from tests.storages.persistent.killing import COMMIT_EVERY, FLUSH_EVERY, sample
from tests.support.episodic import EpisodesModel

SIZE = 800
CHECKPOINT_EVERY = 29
LONGEST_SECONDS = killing.LONGEST_SECONDS | {"checkpoints": 0.03}


def made(directory: Path, commit_every: int = 1) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(SIZE, directory, alpha=0.5, commit_every=commit_every)
    return factory("cpu", None, SimpleNamespace(gamma=0.9), None)


def steps_in(storage: Any) -> int:
    return int(storage._directory.memtable.ring.steps)


# The process that is killed


def insert_until_killed(folder: Path, commit_every: int, goes_back: bool, progress: SharedNumbers) -> None:
    storage = made(folder / "kept", commit_every)
    progress["opened"] = 1
    saved = checkpoint_in(folder)
    if goes_back:
        storage.load_state_dict(saved["storage"])
        progress["inserted"] = progress["flushed"] = saved["step"]
    progress["goes on"] = 1
    step = steps_in(storage)
    while True:
        storage.insert_transition(sample(step))
        step += 1
        progress["inserted"] = step
        if step % FLUSH_EVERY == 0:
            storage.flush()
            progress["flushed"] = step
        if step % 10 == 0 and len(storage):
            list(storage.generate_batches(1, 8))
        # A process that continues from a checkpoint makes another one only if it went back to it.
        if step % CHECKPOINT_EVERY == 0 and (goes_back or saved["step"] is None):
            progress["checkpoints"] = 1
            torch.save({"step": step, "storage": storage.state_dict()}, folder / "checkpoint.new")
            (folder / "checkpoint.new").replace(folder / "checkpoint")
            progress["checkpoints"] = 0
            progress["flushed"] = step


def checkpoint_in(folder: Path) -> Any:
    file = folder / "checkpoint"
    return torch.load(file, weights_only=True) if file.exists() else {"step": None}


# Checks of what is left


class Model:
    """All insertions up to a step."""

    def __init__(self) -> None:
        self.episodes, self.steps = EpisodesModel(SIZE), 0

    def bring_to(self, step: int) -> None:
        while self.steps < step:
            self.episodes.insert({key: np.asarray(value) for key, value in sample(self.steps).items()})
            self.steps += 1

    def assert_is(self, storage: Any) -> None:
        assert steps_in(storage) == self.steps
        gone, self.episodes.gone = self.episodes.gone, storage.ring.start
        self.episodes.assert_holds(storage)
        self.episodes.gone = gone


class Kills:
    """Kills one after another in a folder, and the figures of them.

    Args:
        folder: folder of the buffer and the checkpoint.
        seed: seed of the instants.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, np.random.default_rng(seed)
        self._saved_step: int | None = None
        self.model = Model()
        self.figures = dict.fromkeys(("kills", *(f"while it {doing}" for doing in LONGEST_SECONDS)), 0)
        self.figures |= {"checkpoints": 0, "most missing": 0, "segments": 0}

    def kill(self, doing: str) -> None:
        """Start a process, kill it during an action, and check what is left."""
        can_go_back, begun_at = self._saved_step is not None, self.model.steps
        goes_back = can_go_back and (doing in ("checkpoints", "goes back") or bool(self._random.random() < 0.25))
        commit_every = int(self._random.choice(COMMIT_EVERY))
        progress = SharedNumbers("inserted", "flushed", "opened", "goes on", "checkpoints")
        progress["inserted"] = progress["flushed"] = begun_at
        live_until_killed(
            lambda: insert_until_killed(self._folder, commit_every, goes_back, progress),
            {
                "opens": lambda: True,
                "inserts": lambda: progress["goes on"] and progress["flushed"] >= begun_at + FLUSH_EVERY,
                # Not the first one, so that there is a complete checkpoint.
                "checkpoints": lambda: progress["checkpoints"] and (self._folder / "checkpoint").exists(),
                "goes back": lambda: bool(progress["opened"]),
            }[doing],
            LONGEST_SECONDS[doing],
            self._random,
        )
        self._count(progress, goes_back)
        left = made(self._folder / "kept")
        self._check(left, progress, goes_back, commit_every)
        if left._directory.flush_queue is not None:
            self.figures["segments"] = max(
                self.figures["segments"], left._directory.flush_queue.archive.record["commit"]
            )
        left.close()

    def _count(self, progress: SharedNumbers, goes_back: bool) -> None:
        going_back = goes_back and progress["opened"] and not progress["goes on"]
        doing = "checkpoints" if progress["checkpoints"] else "goes back" if going_back else "inserts"
        self.figures[f"while it {doing if progress['opened'] else 'opens'}"] += 1
        self.figures["kills"] += 1

    def _check(self, left: Any, progress: SharedNumbers, goes_back: bool, commit_every: int) -> None:
        saved, steps, begun_at = checkpoint_in(self._folder), steps_in(left), self.model.steps
        if goes_back and progress["opened"] and not progress["goes on"]:
            # The state may be any in between; the next process goes back again.
            assert saved["step"] <= steps <= begun_at, (saved["step"], steps, begun_at)
        else:
            inserted, flushed = progress["inserted"], progress["flushed"]
            assert flushed <= steps <= inserted + 1, (flushed, steps, inserted)
            assert inserted - steps <= commit_every, (inserted, steps, commit_every)
            self.figures["most missing"] = max(self.figures["most missing"], inserted - steps)
        if steps < begun_at:
            self.model = Model()
        self.model.bring_to(steps)
        self.model.assert_is(left)
        self.figures["checkpoints"] += saved["step"] != self._saved_step
        self._saved_step = saved["step"]
        if saved["step"] is not None:
            assert_opens_at_checkpoint(self._folder, saved)


def assert_opens_at_checkpoint(folder: Path, saved: Any) -> None:
    """Check a copy, so that the directory itself is not rolled back."""
    shutil.copytree(folder / "kept", folder / "copy")
    storage, model = made(folder / "copy"), Model()
    storage.load_state_dict(saved["storage"])
    model.bring_to(saved["step"])
    model.assert_is(storage)
    storage.close()
    shutil.rmtree(folder / "copy")


def main(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    # This process compiles the kernels once for all its forks.
    warm = made(folder / "warm")
    for step in range(60):
        warm.insert_transition(sample(step))
    list(warm.generate_batches(1, 8))
    warm.close()
    killed = Kills(folder, seed)
    for kill in range(kills):
        killed.kill(list(LONGEST_SECONDS)[kill % len(LONGEST_SECONDS)])
    print(json.dumps(killed.figures | {"steps": killed.model.steps}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
