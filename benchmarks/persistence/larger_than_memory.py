"""Cost of data four times as large as the memory budget: batches from disk beside the same from memory.

``PersistentEpisodicBuffer`` draws transitions, sequences and whole episodes from a directory: once within a budget of a
quarter of the data, in a process that the kernel refuses more private memory than that and a slack, once with all of it
in memory. Both are asked in turn, in processes of their own; a ratio is the median of those of neighbouring blocks.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.persistence.episodes_worker import WAYS, bytes_of_a_step, fill
from benchmarks.shared.contest import Contest, Target
from benchmarks.shared.rounds import wide_console

_ON_DISK, _IN_MEMORY = "a quarter in memory", "all in memory"
_TARGET = Target(at_least=1 / 3, other=_IN_MEMORY)
_TIMES_THE_BUDGET = 4
_SLACK_BYTES = 32 << 20
"""Private memory that is not the storage's: batches, threads, what the allocator does not return."""


@dataclass
class Arguments:
    """What to measure."""

    repetitions: int = 11
    """Blocks of each, from 3; ``quick`` makes it 3."""
    quick: bool = False
    """Show in half a minute that everything works; there is little data and the figures mean little."""
    folder: Path | None = None
    """Where the data is put meanwhile, which says on which disk; a temporary folder where None."""
    json: Path | None = None
    """Write the figures here too."""


def main(arguments: Arguments) -> None:
    """Measure and print."""
    budget = (2 if arguments.quick else 64) << 20
    repetitions = 3 if arguments.quick else max(3, arguments.repetitions)
    batches = {"transitions": 3_000, "sequences of 20 steps": 600, "whole episodes": 240}
    console = wide_console()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        directory = Path(temporary) / "episodes"
        fill(directory, _TIMES_THE_BUDGET * budget // bytes_of_a_step() + 1, budget)
        figures = {}
        for way in WAYS:
            count = batches[way] // (10 if arguments.quick else 1)
            contest, held = _measured(directory, way, budget, repetitions, count)
            console.print(contest.table())
            console.print(held, highlight=False)
            figures[way] = contest.figures()
    console.print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1))


def _measured(directory: Path, way: str, budget: int, repetitions: int, count: int) -> tuple[Contest, str]:
    """Return a contest, and whether the limit was kept, in words."""
    workers = {
        _ON_DISK: _Worker(directory, way, budget, _SLACK_BYTES),
        _IN_MEMORY: _Worker(directory, way, 16 * budget, None),
    }
    for worker in workers.values():
        worker.microseconds(count)
    microseconds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(repetitions):
        for name, worker in workers.items():
            microseconds[name].append(worker.microseconds(count))
    for worker in workers.values():
        worker.end()
    limited, free = workers[_ON_DISK], workers[_IN_MEMORY]
    assert limited.stored == free.stored == free.in_memory > _TIMES_THE_BUDGET * limited.in_memory
    _, batch_size = WAYS[way]
    held = (
        f"{limited.stored:,} transitions, {limited.in_memory:,} of them in memory; the storage took up to "
        f"{limited.most_bytes / 2**20:.1f} of {budget / 2**20:.0f} MiB, its process {limited.most_private / 2**20:.1f} "
        f"MiB, which may take {(budget + _SLACK_BYTES) / 2**20:.0f}\n"
    )
    title = f"Batches of {batch_size} {way}, microseconds each"
    return Contest(title, microseconds, [_IN_MEMORY], (_TARGET,)), held


class _Worker:
    """A process that draws batches.

    Args:
        directory: of the data.
        way: one of ``WAYS``.
        memory_bytes: memory budget of the storage.
        slack_bytes: further memory that the process may take; None for no limit.
    """

    def __init__(self, directory: Path, way: str, memory_bytes: int, slack_bytes: int | None) -> None:
        script = Path(__file__).with_name("episodes_worker.py")
        limit = [] if slack_bytes is None else [str(slack_bytes)]
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(directory), way, str(memory_bytes), *limit],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        facts = self._heard()
        self.stored, self.in_memory = int(facts["stored"]), int(facts["in_memory"])
        self.most_private = self.most_bytes = 0

    def microseconds(self, batches: int) -> float:
        """Return the microseconds per batch, over a block of batches."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{batches}\n")
        self._process.stdin.flush()
        facts = self._heard()
        self.most_private = max(self.most_private, facts["private_bytes"])
        self.most_bytes = max(self.most_bytes, facts["nbytes"])
        return float(facts["seconds"] / batches * 1e6)

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process that drew batches has ended: the limit of memory did not hold, or see above")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
