"""A process whose private memory the kernel limits to a budget and a slack, and that draws from more data.

``python limited_memory.py directory budget slack`` draws from the data of :func:`fill` in the directory, and prints the
memory that it used as JSON.
"""

import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from storages import Episode, Episodes, PersistentEpisodicBuffer, Sequences
from storages.transition import ACT, MASK, OBS, OBS2, REW
from tests.support.model import ALGORITHM

LENGTH = 50
OBSERVATION = 256
BYTES_OF_A_STEP = 4 * OBSERVATION + 8 + 4 + 3
KINDS = {"sequences": Sequences(20), "whole episodes": Episodes()}
BATCH = {"sequences": 64, "whole episodes": 24}
PASSES = 3


def made(directory: Path, memory: int, **given: Any) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(None, directory, memory_bytes=memory, **given)
    return factory("cpu", None, ALGORITHM, None)


def fill(directory: Path, episodes: int, memory: int) -> None:
    """Fill a directory; every number of an observation, and the action, is the number of the step."""
    storage = made(directory, memory)
    for episode in range(episodes):
        numbers = np.arange(episode * LENGTH, (episode + 1) * LENGTH + 1)[:, None]
        fields = {ACT: numbers[:-1], REW: np.ones((LENGTH, 1), np.float32)}
        storage.add_episode(Episode(np.repeat(numbers, OBSERVATION, 1).astype(np.float32), fields, True, False))
    storage.close()


def draw(storage: Any, kind: str, passes: int) -> set[int]:
    """Check all batches of some passes over the data; return the numbers of the drawn episodes."""
    met: set[int] = set()
    each = 20 if kind == "sequences" else LENGTH
    batches = 8 * passes * len(storage) // (each * BATCH[kind])
    for batch in storage.generate_batches(batches, BATCH[kind]):
        steps, real = batch[ACT], batch[MASK] == 1
        assert torch.equal(batch[OBS], steps.float().expand_as(batch[OBS]))
        assert torch.equal(batch[OBS2], (steps + 1).float().expand_as(batch[OBS2]))
        assert torch.equal(steps[1:], torch.where(real[1:], steps[:-1] + 1, steps[:-1]))
        assert torch.equal(steps // LENGTH, (steps[:1] // LENGTH).expand_as(steps))
        if kind != "sequences":
            assert real.all()
            assert (steps[0] % LENGTH == 0).all()
        met.update((steps[0, :, 0] // LENGTH).tolist())
    return met


def status(name: str) -> int:
    """Bytes of this process as counted by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def main(directory: Path, budget: int, slack: int) -> None:
    # Compilation and late imports are not counted for the storage.
    with tempfile.TemporaryDirectory() as warm:
        fill(Path(warm) / "warm", 80, 2 << 20)
        for kind, sequences in KINDS.items():
            storage = made(Path(warm) / "warm", 2 << 20, sequences=sequences, read_only=True)
            assert draw(storage, kind, 1)
            storage.close()
    before = status("RssAnon")
    limit = status("VmData") + budget + slack
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    figures: dict[str, Any] = {}
    for kind, sequences in KINDS.items():
        storage = made(directory, budget, sequences=sequences, read_only=True)
        storage.seed(0)
        most_private = most_bytes = 0
        met: set[int] = set()
        for _ in range(PASSES):
            met |= draw(storage, kind, 1)
            most_private = max(most_private, status("RssAnon") - before)
            most_bytes = max(most_bytes, storage.nbytes)
        figures[kind] = {
            "stored": len(storage),
            "in memory": storage.ring.live_steps,
            "episodes met": len(met),
            "private bytes": most_private,
            "storage's bytes": most_bytes,
        }
        storage.close()
        del storage
    try:
        made(directory, 16 * budget, sequences=Sequences(20), read_only=True)
    except MemoryError:
        figures["with more"] = "refused"
    print(json.dumps(figures))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
