"""What a directory costs: microseconds an insertion with and without one, transitions a second, seconds to open.

``python benchmarks/on_disk.py [folder]``: transitions of 17 floats as observation and 6 as action, in episodes of 500
steps on average. Rounds with and without a directory take turns, so that whatever else the machine does meets both; the
median of each is shown. The folder says which disk.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# `import storages` is to find the package, not the benchmark of that name.
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from storages import ReplayBuffer
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2

ROUNDS = 7
PREPARED_STEPS = 1_000


def stream(num_envs: int) -> list[dict[str, Any]]:
    """Steps that follow one another."""
    draw = np.random.default_rng(0)
    observe = lambda: draw.normal(size=(num_envs, 17)).astype(np.float32)  # noqa: E731
    begins, ended, steps = observe(), np.ones((num_envs, 1), bool), []
    for _ in range(PREPARED_STEPS):
        follows, truncated = observe(), draw.random((num_envs, 1)) < 1 / 500
        steps.append(
            {
                OBS: begins,
                DONE: ended,
                ACT: draw.normal(size=(num_envs, 6)).astype(np.float32),
                REW: draw.normal(size=(num_envs, 1)).astype(np.float32),
                OBS2: follows,
                DONE2: np.zeros((num_envs, 1), bool),
                TRUNC2: truncated,
            }
        )
        begins, ended = np.where(truncated, observe(), follows), truncated
    return steps


def made(size: int, directory: Path | None) -> ReplayBuffer:
    """A replay buffer."""
    return ReplayBuffer.create_factory(size=size, directory=directory)("cpu", None, SimpleNamespace(gamma=0.99), None)


def insertion_seconds(steps: list[dict[str, Any]], count: int, directory: Path | None) -> tuple[float, float]:
    """Seconds that ``count`` insertions take, and with a directory until all of them are on disk."""
    storage = made(count, directory)
    storage.insert_transition(steps[0])
    started = time.perf_counter()
    for number in range(count):
        storage.insert_transition(steps[number % PREPARED_STEPS])
    inserted = time.perf_counter()
    storage.flush()
    flushed = time.perf_counter()
    storage.close()
    return inserted - started, flushed - started


def main(folder: Path) -> None:
    """Measure and print."""
    for num_envs, count in ((1, 100_000), (256, 4_000)):
        steps, without, with_one, until_flushed = stream(num_envs), [], [], []
        for number in range(ROUNDS):
            without.append(insertion_seconds(steps, count, None)[0])
            inserted, flushed = insertion_seconds(steps, count, folder / f"{num_envs} {number}")
            with_one.append(inserted)
            until_flushed.append(flushed)
        before, after = (1e6 * statistics.median(seconds) / count for seconds in (without, with_one))
        rate = count * num_envs / statistics.median(until_flushed)
        print(
            f"{num_envs:>4} environments: {before:6.1f} us an insertion without, {after:6.1f} with a directory; "
            f"{rate:>11,.0f} transitions a second until all are on disk"
        )
    insertion_seconds(stream(1), 1_000_000, folder / "million")
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        storage = made(1_000_000, folder / "million")
        seconds.append(time.perf_counter() - started)
        assert len(storage) == 1_000_000
        storage.close()
    print(f"1,000,000 transitions open in {statistics.median(seconds):.2f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as temporary:
        main(Path(temporary))
