"""A process that draws batches of whole episodes from disk on request, within a memory limit if one is set.

It is a separate process because the operating system limits the private memory of processes. Files that it reads are
not counted, and are dropped from the page cache before each block of batches.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch

from storages import Episode, Episodes, PersistentEpisodicBuffer, Sequences
from storages.transition import ACT, REW

WAYS: dict[str, tuple[Sequences | Episodes | None, int]] = {
    "transitions": (None, 256),
    "sequences of 20 steps": (Sequences(20), 64),
    "whole episodes": (Episodes(), 16),
}
"""Contents and sizes of the batches."""
_OBSERVATION, _ACTION = 17, 6
_LENGTHS = (50, 350)
_WARM_UP_STEPS, _WARM_UP_BYTES = 20_000, 2 << 20


def bytes_of_a_step() -> int:
    """Return the bytes of observation, action, reward and three flags."""
    return 4 * (_OBSERVATION + _ACTION + 1) + 3


def fill(directory: Path, steps: int, memory_bytes: int) -> None:
    """Write episodes of random numbers, which cannot be compressed, to be drawn within so much memory."""
    draw, stored = np.random.default_rng(0), 0
    storage = _made(directory, None, memory_bytes)
    while stored < steps:
        length = int(draw.integers(*_LENGTHS))
        numbers = draw.standard_normal((length + 1, _OBSERVATION + _ACTION + 1), np.float32)
        fields = {ACT: numbers[1:, :_ACTION].copy(), REW: numbers[1:, -1:].copy()}
        storage.add_episode(Episode(numbers[:, _ACTION:-1].copy(), fields, terminated=True, truncated=False))
        stored += length
    storage.close()


def _made(directory: Path, sequences: Sequences | Episodes | None, memory_bytes: int, **given: Any) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(
        None, directory, sequences=sequences, memory_bytes=memory_bytes, **given
    )
    return factory("cpu", None, SimpleNamespace(gamma=0.99), None)


def _serve(directory: Path, way: str, memory_bytes: int, slack_bytes: int | None) -> None:
    """Draw as many batches as each line of the input says, and print the time."""
    torch.set_num_threads(1)
    sequences, batch_size = WAYS[way]
    with tempfile.TemporaryDirectory() as warm:
        fill(Path(warm) / "warm", _WARM_UP_STEPS, _WARM_UP_BYTES)
        storage = _made(Path(warm) / "warm", sequences, _WARM_UP_BYTES, read_only=True)
        for _ in storage.generate_batches(500, batch_size):
            pass
        storage.close()
    before = _status("RssAnon")
    if slack_bytes is not None:
        limit = _status("VmData") + memory_bytes + slack_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    storage = _made(directory, sequences, memory_bytes, read_only=True)
    storage.seed(0)
    _say({"stored": len(storage), "in_memory": storage.ring.live_steps})
    for line in sys.stdin:
        _forget_files(directory)
        started = time.perf_counter()
        for _ in storage.generate_batches(int(line), batch_size):
            pass
        seconds = time.perf_counter() - started
        _say({"seconds": seconds, "private_bytes": _status("RssAnon") - before, "nbytes": storage.nbytes})


def _status(name: str) -> int:
    """Return a figure of the process's memory in bytes, as the kernel counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _forget_files(directory: Path) -> None:
    """Drop the files from the page cache, so that they are read from the disk."""
    for path in directory.rglob("c.*"):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _say(facts: dict[str, Any]) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
