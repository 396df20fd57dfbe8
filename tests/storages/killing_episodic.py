"""Kills processes that insert into a buffer of episodes on disk, at random instants, and looks at what is left.

A script, because it forks: ``python killing_episodic.py <directory> <kills> <seed>`` prints figures as a line of JSON.
What is inserted follows from the number of the step alone, so the model can be brought to any step.
"""

import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from episodic import EpisodesModel
from killing import heard, sample, say

from storages import PersistentEpisodicBuffer

SIZE = 800
COMMIT_EVERY = (1, 2, 9, 40)
LONGEST_SECONDS = 0.15
torch.set_num_threads(1)


def made(directory: Path, commit_every: int = 1) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(SIZE, directory, alpha=0.5, commit_every=commit_every)
    return factory("cpu", None, SimpleNamespace(gamma=0.9), None)


def insert_until_killed(directory: Path, commit_every: int, said: mmap.mmap) -> None:
    storage = made(directory, commit_every)
    say(said, 2, 1)
    step = storage._directory.running.ring.steps
    while True:
        storage.insert_transition(sample(step))
        step += 1
        say(said, 0, step)
        if step % 23 == 0:
            storage.flush()
            say(said, 1, step)
        if step % 10 == 0 and len(storage):
            list(storage.generate_batches(1, 8))


def main(directory: Path, kills: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    model, reached = EpisodesModel(SIZE), 0
    figures = {"kills": 0, "before it was open": 0, "steps": 0, "volumes": 0, "most missing": 0}
    # Compiled once, by this process, for all that are forked off it.
    warm = made(directory.with_name("warm"))
    for step in range(60):
        warm.insert_transition(sample(step))
    list(warm.generate_batches(1, 8))
    warm.close()
    for kill in range(kills):
        said = mmap.mmap(-1, 24)
        say(said, 0, reached)
        say(said, 1, reached)
        commit_every = int(random.choice(COMMIT_EVERY))
        child = os.fork()
        if child == 0:
            try:
                insert_until_killed(directory, commit_every, said)
            finally:
                os._exit(1)
        # As often while it is opened as while steps are inserted.
        while kill % 2 and not heard(said)[2]:
            time.sleep(0.001)
        time.sleep(LONGEST_SECONDS * random.random() ** 2)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the process ended by itself"
        inserted, flushed, opened = heard(said)
        left = made(directory)
        steps = left._directory.running.ring.steps
        assert flushed <= steps <= inserted + 1, (flushed, steps, inserted)
        assert inserted - steps <= commit_every, (inserted, steps, commit_every)
        while reached < steps:
            model.insert(_as_array(sample(reached)))
            reached += 1
        gone, model.gone = model.gone, left.ring.start
        model.assert_holds(left)
        model.gone = gone
        figures["kills"] += 1
        figures["before it was open"] += not opened
        figures["most missing"] = max(figures["most missing"], inserted - steps)
        if left._directory.shelving is not None:
            figures["volumes"] = max(figures["volumes"], left._directory.shelving.archive.record["record"])
        left.close()
    figures["steps"] = reached
    print(json.dumps(figures))  # noqa: T201


def _as_array(step: dict[str, Any]) -> dict[str, Any]:
    return {key: np.asarray(value) for key, value in step.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
