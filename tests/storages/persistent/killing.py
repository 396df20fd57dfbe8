"""Kills processes that insert into a storage on disk, at random instants, and checks what is left each time.

A script, because it forks: ``python killing.py <folder> <kills> <seed>`` prints figures as a line of JSON. The
operations depend only on the number of the step, so a twin in memory can be brought to any step. The processes are
killed while they open the storage, insert, write a checkpoint, or go back to the last complete checkpoint.
"""

import copy
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from storages import EREBuffer
from storages.persistent.replay import write_ahead_log
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2
from tests.storages.persistent.forked import SharedNumbers, live_until_killed

NUM_ENVS, WIDTH, SIZE = 8, 500, 60
COMMIT_EVERY = (1, 2, 9, 40)
UPDATE_EVERY, FLUSH_EVERY, CHECKPOINT_EVERY = 5, 23, 97
SLICE_STEPS = UPDATE_EVERY - 1
LONGEST_SECONDS = {"opens": 0.04, "inserts": 0.15, "checkpoints": 0.003, "goes back": 0.04}
"""Longest time until the kill, for each action of the process, in turn."""
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
    # Sometimes an environment continues elsewhere without an end of its episode.
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
    if step % UPDATE_EVERY == 0:
        update(storage, step)


def go_on_by_a_slice(storage: Any, step: int) -> None:
    samples = [sample(step + later) for later in range(SLICE_STEPS)]
    storage.insert_data_slice({key: np.stack([one[key] for one in samples]) for key in samples[0]})


# The process that is killed


def insert_until_killed(folder: Path, commit_every: int, goes_back: bool, progress: SharedNumbers) -> None:
    storage = made(folder / "kept", commit_every)
    progress["opened"] = 1
    saved = checkpoint_in(folder)
    if goes_back:
        storage.load_state_dict(saved["storage"])
        progress["begun"] = progress["inserted"] = progress["flushed"] = saved["step"]
    elif saved["step"] is not None:
        storage.pin(saved["storage"]["position"])
    progress["goes on"] = 1
    step = storage.ring.steps
    while True:
        # Every other time, the steps between two updates are inserted as one slice.
        at_once = SLICE_STEPS if step % (2 * UPDATE_EVERY) == 1 else 1
        progress["begun"] = step + at_once
        (go_on_by_a_slice if at_once > 1 else go_on)(storage, step)
        before, step = step, step + at_once
        progress["inserted"] = step
        if step // FLUSH_EVERY > before // FLUSH_EVERY:
            storage.flush()
            progress["flushed"] = step
        if step // CHECKPOINT_EVERY > before // CHECKPOINT_EVERY:
            progress["checkpoints"] = 1
            save_checkpoint(folder, step, storage.state_dict())
            progress["checkpoints"] = 0
            progress["flushed"] = step


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    (folder / "checkpoint.new").write_text(json.dumps({"step": step, "storage": state}))
    (folder / "checkpoint.new").replace(folder / "checkpoint")


def checkpoint_in(folder: Path) -> Any:
    file = folder / "checkpoint"
    return json.loads(file.read_text()) if file.exists() else {"step": None}


# Checks of what is left


class Twin:
    """A storage in memory with equal operations, and its state at the last checkpoint.

    Args:
        seed: seed of its random generator.
    """

    def __init__(self, seed: int) -> None:
        self.storage, self.steps = made(None), 0
        self.storage.seed(seed)
        self.saved: Any = {"step": None}

    def bring_to(self, step: int) -> None:
        while self.steps < step:
            go_on(self.storage, self.steps)
            self.steps += 1

    def save(self) -> None:
        self.saved = {"step": self.steps, "storage": copy.deepcopy(self.storage.state_dict())}

    def at_checkpoint(self) -> Any:
        storage = made(None)
        storage.load_state_dict(self.saved["storage"])
        return storage

    def go_back(self) -> None:
        self.storage, self.steps = self.at_checkpoint(), self.saved["step"]


def log_bytes(folder: Path) -> int:
    """Size of all files of steps."""
    return sum(path.stat().st_size for path in folder.glob("*.steps"))


def assert_holds_what_was_inserted(storage: Any) -> None:
    """Assert that the rows are the newest steps, as inserted and without gaps."""
    steps, rows = storage.ring.steps, storage.get_all_buffer_data()
    assert len(storage) == NUM_ENVS * min(steps, SIZE)
    for row, step in enumerate(range(max(0, steps - SIZE), steps)):
        for key, value in sample(step).items():
            assert np.array_equal(rows[key][row].numpy(), value.astype(rows[key].numpy().dtype)), (key, step)


def assert_same(one: Any, two: Any, step: int) -> None:
    """Assert that two storages have equal content and draw equal batches."""
    assert same(one.get_all_buffer_data(), two.get_all_buffer_data())
    for left, right in zip(update(one, step), update(two, step), strict=True):
        assert same(left, right)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return torch.equal(one, two)


def assert_opens_at_checkpoint(folder: Path, twin: Twin) -> None:
    """Check a copy, so that the directory itself is not rolled back."""
    saved = checkpoint_in(folder)
    shutil.copytree(folder / "kept", folder / "copy")
    storage = made(folder / "copy")
    storage.load_state_dict(saved["storage"])
    assert storage.ring.steps == saved["step"] == twin.saved["step"]
    assert_same(storage, twin.at_checkpoint(), saved["step"])
    storage.close()
    shutil.rmtree(folder / "copy")


class Kills:
    """Kills one after another in a folder, and the figures of them.

    Args:
        folder: folder of the storage and the checkpoint.
        seed: seed of the instants.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random, self.twin = folder, np.random.default_rng(seed), Twin(seed)
        first = made(folder / "kept")
        first.seed(seed)
        go_on(first, 0)
        first.close()
        self.twin.bring_to(1)
        self.figures = dict.fromkeys(("kills", *(f"while it {doing}" for doing in LONGEST_SECONDS)), 0)
        self.figures |= {"checkpoints": 0, "cut": 0, "most missing": 0}

    def kill(self, doing: str) -> None:
        """Start a process, kill it during an action, and check what is left."""
        has_checkpoint = self.twin.saved["step"] is not None
        goes_back = has_checkpoint and (doing == "goes back" or bool(self._random.random() < 0.25))
        commit_every = int(self._random.choice(COMMIT_EVERY))
        progress = SharedNumbers("begun", "inserted", "flushed", "opened", "goes on", "checkpoints")
        progress["begun"] = progress["inserted"] = progress["flushed"] = self.twin.steps
        live_until_killed(
            lambda: insert_until_killed(self._folder, commit_every, goes_back, progress),
            {
                "opens": lambda: True,
                "inserts": lambda: progress["goes on"] and progress["flushed"] >= self.twin.steps + FLUSH_EVERY,
                # Not the first one, so that there is a complete checkpoint.
                "checkpoints": lambda: progress["checkpoints"] and (self._folder / "checkpoint").exists(),
                "goes back": lambda: bool(progress["opened"]),
            }[doing],
            LONGEST_SECONDS[doing],
            self._random,
        )
        self._count(progress, goes_back)
        before = log_bytes(self._folder / "kept")
        left = made(self._folder / "kept")
        self.figures["cut"] += log_bytes(self._folder / "kept") < before
        self._check(left, progress, goes_back, commit_every)
        left.close()

    def _count(self, progress: SharedNumbers, goes_back: bool) -> None:
        going_back = goes_back and progress["opened"] and not progress["goes on"]
        doing = "checkpoints" if progress["checkpoints"] else "goes back" if going_back else "inserts"
        self.figures[f"while it {doing if progress['opened'] else 'opens'}"] += 1
        self.figures["kills"] += 1

    def _check(self, left: Any, progress: SharedNumbers, goes_back: bool, commit_every: int) -> None:
        twin, saved, steps = self.twin, checkpoint_in(self._folder), left.ring.steps
        assert_holds_what_was_inserted(left)
        if goes_back and progress["opened"] and not progress["goes on"]:
            # The state may be any in between; the next process goes back again.
            assert saved["step"] <= steps <= twin.steps, (saved["step"], steps, twin.steps)
            left.load_state_dict(saved["storage"])
        else:
            inserted, flushed = progress["inserted"], progress["flushed"]
            assert flushed <= steps <= progress["begun"], (flushed, steps, progress["begun"])
            assert inserted - steps <= commit_every, (inserted, steps, commit_every)
            self.figures["most missing"] = max(self.figures["most missing"], inserted - steps)
        if goes_back and progress["opened"]:
            twin.go_back()
        if saved["step"] != twin.saved["step"]:
            twin.bring_to(saved["step"])
            twin.save()
            self.figures["checkpoints"] += 1
        if saved["step"] is not None:
            assert_opens_at_checkpoint(self._folder, twin)
        twin.bring_to(left.ring.steps)
        assert_same(left, twin.storage, twin.steps)


def main(folder: Path, kills: int, seed: int) -> None:
    write_ahead_log.LOG_FILE_BYTES = 1_000_000
    torch.set_num_threads(1)
    # This process compiles the kernels once for all its forks.
    warm = made(None)
    for step in range(SIZE + 4):
        go_on(warm, step)
    killed = Kills(folder, seed)
    for kill in range(kills):
        killed.kill(list(LONGEST_SECONDS)[kill % len(LONGEST_SECONDS)])
    directory, reached = folder / "kept", killed.twin.steps
    dropped = min(int(path.stem) for path in directory.glob("*.steps")) > 1
    # A storage that is left open is closed at the end of the process.
    left = made(directory, SIZE)
    for step in range(reached, reached + LEFT_OPEN_STEPS):
        go_on(left, step)
    kept_open.append(left)
    print(json.dumps(killed.figures | {"steps": reached, "segments dropped": dropped}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
