"""Batches a second that shards in other processes serve to a learner, beside a storage in the learner's own process.

Prioritised replay of transitions of 17 numbers. A learner that computes nothing draws batches and gives errors back:

- "in process": one storage, in this process.
- "one shard": the same transitions in a process of Ray, which serves them through Ray's object store.
- "shared memory": the same shard in a plain process, which writes batches into shared memory, and is sent the
  numbers of free pieces through a pipe; a lower bound for Ray's object store.
- "all shards": several such shards of Ray, each as large, behind one source.

All take turns, so that the machine's load affects all alike; medians are shown, and the median of the ratios of
neighbouring turns.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import ray
import torch
import tyro
from rich.console import Console

from benchmarks.shared.machine import machine
from benchmarks.shared.rounds import Goal, Rounds, in_turn
from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker
from storages import PERBuffer, ReplayBuffer
from storages.component.factory import Factory
from storages.sharded import Pending, ReplayShard, ShardedReplay, ShardGroup, SliceWriter
from storages.sharded.packed_batches import PackedBatches
from storages.sharded.replay_shard import Reply
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2

_GAMMA, _ENVS, _SLICE_STEPS, _WIDTH, _ACTIONS = 0.99, 8, 1_000, 17, 6
_IN_PROCESS, _ONE, _MEMORY = "in process", "one shard", "shared memory"


@dataclass
class Arguments:
    """What to measure."""

    transitions: int = 1_000_000
    """Transitions in each shard."""
    shards: int = 4
    """Shards of the largest replay."""
    batch_size: int = 256
    """Rows of a batch."""
    batches: int = 1_000
    """Batches of each in a turn."""
    rounds: int = 9
    """Turns."""
    batches_at_once: int = 32
    """Batches of a round of messages."""


def main(arguments: Arguments) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    console = Console()
    console.print(machine("ray", "torch", "numpy"), highlight=False)
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(
            num_cpus=arguments.shards + 2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=2**29,
            _temp_dir=folder,
        )
        try:
            _measure(arguments, console)
        finally:
            ray.shutdown()


def _measure(arguments: Arguments, console: Console) -> None:
    factory: Factory[Any] = PERBuffer.create_factory(
        size=arguments.transitions // _ENVS, alpha=0.6, beta=0.4, epsilon=1e-2
    )
    data = _slice(np.random.default_rng(0))
    own = StorageMaker(factory, _GAMMA)()
    slices = -(-arguments.transitions // (_ENVS * _SLICE_STEPS))
    for _ in range(slices):
        own.insert_data_slice(data)
    groups: dict[str, ShardGroup] = {
        _ONE: RayShards(StorageMaker(factory, _GAMMA), 1),
        _MEMORY: _SharedMemoryShard(StorageMaker(factory, _GAMMA)),
    }
    if arguments.shards > 1:
        whole = PERBuffer.create_factory(**factory.hyper_parameters | {"size": own.size * arguments.shards})  # type: ignore[operator]
        groups[f"{arguments.shards} shards"] = RayShards(StorageMaker(whole, _GAMMA), arguments.shards)
    sources: dict[str, Any] = {_IN_PROCESS: own}
    for name, group in groups.items():
        source = sources[name] = ShardedReplay(group, batches_at_once=arguments.batches_at_once, patience_seconds=300)
        assert not len(source), "processes have started"
        started, writer = time.perf_counter(), SliceWriter(group)
        for _ in range(slices * len(group)):
            writer.write(data)
        writer.flush()
        seconds, held = time.perf_counter() - started, len(source)
        console.print(
            f"{name}: {held:,} transitions, {source.nbytes / 2**20:,.0f} MiB, {seconds * 1e6 / held:.2f} microseconds "
            f"each to fill",
            highlight=False,
        )
    work = {name: _rate_of(source, arguments) for name, source in sources.items()}
    for rate in work.values():
        rate()
    rates = Rounds(
        f"batches of {arguments.batch_size} drawn and errors given back, a second",
        "batches a second",
        lambda rate: f"{rate:,.0f}",
        in_turn(work, arguments.rounds),
    )
    for name in groups:
        ratio = rates.ratio(name, _IN_PROCESS)
        rates.goals.append(
            Goal(f"{name} serves at least a third of the rate in process", f"{ratio:.2f}", ratio >= 1 / 3)
        )
    rates.print(console)
    against = statistics.median(rates.ratios(_ONE, _MEMORY))
    console.print(f"Ray's object store serves {against:.2f} times the rate of plain shared memory", highlight=False)
    for group in groups.values():
        group.close()


def _rate_of(source: Any, arguments: Arguments) -> Callable[[], float]:
    random = np.random.default_rng(1)
    errors = [
        torch.from_numpy(random.exponential(size=(arguments.batch_size, 1)).astype(np.float32)) for _ in range(64)
    ]

    def rate() -> float:
        started = time.perf_counter()
        for number, batch in enumerate(source.generate_batches(arguments.batches, arguments.batch_size)):
            source.after_gradients(batch, {ERRORS: errors[number % len(errors)]})
        return arguments.batches / (time.perf_counter() - started)

    return rate


def _slice(random: np.random.Generator) -> dict[str, Any]:
    shape = (_SLICE_STEPS, _ENVS)
    seen = random.normal(size=(_SLICE_STEPS + 1, _ENVS, _WIDTH)).astype(np.float32)
    ends = random.random((*shape, 1)) < 0.01
    begins = np.ones((*shape, 1), bool)
    begins[1:] = ends[:-1]
    return {
        OBS: seen[:-1],
        DONE: begins,
        ACT: random.normal(size=(*shape, _ACTIONS)).astype(np.float32),
        REW: random.normal(size=(*shape, 1)).astype(np.float32),
        OBS2: seen[1:],
        DONE2: ends,
        TRUNC2: np.zeros_like(ends),
        ERRORS: random.exponential(size=(*shape, 1)).astype(np.float32),
    }


# Plain shared memory


class _SharedMemoryShard(ShardGroup):
    """One shard in another process; batches are passed through shared memory.

    Args:
        maker: makes the storage.
    """

    def __init__(self, maker: Callable[[], ReplayBuffer]) -> None:
        context = get_context("spawn")
        self._memory = [SharedMemory(create=True, size=_PIECE_BYTES) for _ in range(_PIECES)]
        self._pipe, theirs = context.Pipe()
        names = [piece.name for piece in self._memory]
        self._process = context.Process(target=_serve, args=(maker, theirs, names), daemon=True)
        self._process.start()
        self._answers: dict[int, Any] = {}
        self._asked = self._heard = self._pieces_used = 0

    def __len__(self) -> int:
        return 1

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        if method == "exchange":
            self._pieces_used += 1
            arguments = (*arguments, self._pieces_used % _PIECES)
        self._asked += 1
        self._pipe.send((method, *arguments))
        return _Heard(self, self._asked)

    def wait(self, pending: Any, timeout_seconds: float | None) -> Any:
        for one in pending:
            if one.number <= self._heard or self._pipe.poll(timeout_seconds):
                return one
        return None

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()
        for piece in self._memory:
            piece.close()
            piece.unlink()

    def hear(self, number: int) -> Any:
        """Return the answer to a message; earlier answers are kept."""
        while self._heard < number:
            self._heard += 1
            self._answers[self._heard] = self._pipe.recv()
        answer = self._answers.pop(number)
        if isinstance(answer, tuple) and answer and answer[0] == "in memory":
            _, summary, piece, kinds = answer
            return Reply(summary, _records_in(self._memory[piece].buf, kinds))
        return answer


@dataclass
class _Heard:
    shard: _SharedMemoryShard
    number: int

    def result(self) -> Any:
        """The answer."""
        return self.shard.hear(self.number)


def _serve(maker: Callable[[], ReplayBuffer], pipe: Connection, names: list[str]) -> None:
    """Answer messages until there are no more."""
    torch.set_num_threads(1)
    shard, pieces = ReplayShard(maker), [SharedMemory(name) for name in names]
    for method, *arguments in _messages(pipe):
        if method != "exchange":
            pipe.send(getattr(shard, method)(*arguments))
            continue
        *given, piece = arguments
        reply = shard.exchange(*given)
        kinds = [(len(records), records.dtype) for records in reply.batches]
        for records, shared in zip(reply.batches, _records_in(pieces[piece].buf, kinds), strict=True):
            shared[:] = records
        pipe.send(("in memory", reply.summary, piece, kinds))


def _records_in(memory: memoryview, kinds: list[tuple[int, np.dtype[Any]]]) -> PackedBatches:
    """Return arrays of records, each with a length and a dtype, consecutively in shared memory."""
    found, begin = [], 0
    for length, dtype in kinds:
        found.append(np.ndarray((length,), dtype, memory, begin))
        begin += found[-1].nbytes
    return found


def _messages(pipe: Connection) -> Iterator[Any]:
    while (message := pipe.recv()) is not None:
        yield message


_PIECES, _PIECE_BYTES = 4, 2**26

if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
