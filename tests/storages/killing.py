"""Kills processes that insert into a storage on disk, at random instants, and looks at what is left each time.

A script, because it forks: ``python killing.py <directory> <kills> <seed>`` prints figures as a line of JSON. What
happens to the storage follows from the number of the step alone, so a twin in memory can be brought to any step.
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

from storages import EREBuffer
from storages.persistent import journal
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2

NUM_ENVS, WIDTH, SIZE = 8, 500, 60
COMMIT_EVERY = (1, 2, 9, 40)
LONGEST_SECONDS = 0.15
LEFT_OPEN_STEPS = 5


kept_open: list[Any] = []


def made(directory: Path | None, commit_every: int = 1) -> Any:
    return EREBuffer.create_factory(
        size=SIZE,
        n_step=2,
        alpha=0.7,
        beta=0.5,
        epsilon=0.01,
        default_error="largest",
        eta=0.99,
        cmin=100,
        adapt_eta=True,
        directory=directory,
        commit_every=commit_every,
    )("cpu", None, SimpleNamespace(gamma=0.9), None)


def sample(step: int) -> dict[str, Any]:
    numbers = np.arange(NUM_ENVS)[:, None]
    terminated, truncated = (step + numbers) % 37 == 0, (step + numbers) % 11 == 0
    ended_before = ((step - 1 + numbers) % 37 == 0) | ((step - 1 + numbers) % 11 == 0)
    # Now and then an environment goes on from somewhere else without having ended.
    moved = 0.5 * ((step + numbers) % 29 == 0)
    pattern = np.arange(WIDTH) * 1e-3
    return {
        OBS: (step + numbers + pattern + moved).astype(np.float32),
        DONE: ended_before,
        ACT: np.full((NUM_ENVS, 1), step % 5),
        REW: (step * 0.01 + numbers).astype(np.float32),
        OBS2: (step + 1 + numbers + pattern).astype(np.float32),
        DONE2: terminated,
        TRUNC2: truncated & ~terminated,
    }


def update(storage: Any, step: int) -> list[Any]:
    random, batches = np.random.default_rng(step), []
    storage.after_episodes([float(random.normal())])
    for batch in storage.generate_batches(2, 16):
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=(16, 1)))})
        batches.append(batch)
    return batches


def go_on(storage: Any, step: int) -> None:
    storage.insert_transition(sample(step))
    if step % 3 == 0:
        update(storage, step)


def insert_until_killed(directory: Path, commit_every: int, said: mmap.mmap) -> None:
    storage = made(directory, commit_every)
    say(said, 2, 1)
    step = storage.ring.steps
    while True:
        go_on(storage, step)
        step += 1
        say(said, 0, step)
        if step % 23 == 0:
            storage.flush()
            say(said, 1, step)


def say(said: mmap.mmap, place: int, number: int) -> None:
    said[8 * place : 8 * place + 8] = number.to_bytes(8, "little")


def heard(said: mmap.mmap) -> tuple[int, int, int]:
    inserted, flushed, opened = (int.from_bytes(said[place : place + 8], "little") for place in (0, 8, 16))
    return inserted, flushed, opened


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return torch.equal(one, two)


def main(directory: Path, kills: int, seed: int) -> None:
    journal.SEGMENT_BYTES = 1_000_000
    torch.set_num_threads(1)
    random = np.random.default_rng(seed)
    twin, reached = made(None), 0
    twin.seed(seed)
    figures = {"kills": 0, "before it was open": 0, "cut": 0, "steps": 0, "most missing": 0, "segments dropped": 0}
    # Compiled once, by this process, for all that are forked off it.
    warm = made(None)
    for step in range(SIZE + 4):
        go_on(warm, step)
    first = made(directory)
    first.seed(seed)
    go_on(first, 0)
    first.close()
    go_on(twin, 0)
    reached = 1
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
        # As often while it is opened as after some steps, so that it gets on however slow the machine is.
        while kill % 2 and heard(said)[1] == reached:
            time.sleep(0.001)
        time.sleep(LONGEST_SECONDS * random.random() ** 2)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the process ended by itself"
        inserted, flushed, opened = heard(said)
        left = made(directory)
        steps = left.ring.steps
        assert flushed <= steps <= inserted + 1, (flushed, steps, inserted)
        assert inserted - steps <= commit_every, (inserted, steps, commit_every)
        figures["kills"] += 1
        figures["before it was open"] += not opened
        figures["cut"] += left._journal.cut_bytes > 0
        figures["most missing"] = max(figures["most missing"], inserted - steps)
        while reached < steps:
            go_on(twin, reached)
            reached += 1
        assert same(left.get_all_buffer_data(), twin.get_all_buffer_data())
        rows = left.get_all_buffer_data()
        for row, step in enumerate(range(max(0, steps - SIZE), steps)):
            for key, value in sample(step).items():
                assert np.array_equal(rows[key][row].numpy(), value.astype(rows[key].numpy().dtype)), (key, step)
        for one, two in zip(update(left, steps), update(twin, steps), strict=True):
            assert same(one, two)
        left.close()
    figures["steps"] = reached
    figures["segments dropped"] = min(int(path.stem) for path in directory.glob("*.steps")) > 1
    # Whoever does not close it has it closed at the end.
    left = made(directory, SIZE)
    for step in range(reached, reached + LEFT_OPEN_STEPS):
        go_on(left, step)
    kept_open.append(left)
    print(json.dumps(figures))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
