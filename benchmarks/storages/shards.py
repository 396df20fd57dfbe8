"""Batches a second that shards in other processes serve to a learner, beside a storage in the learner's own process.

Prioritised replay of transitions of 17 numbers. A learner that computes nothing draws batches and gives errors back:

- "in process": one storage, in this process.
- "one shard": the same transitions in a process of Ray, which writes batches into memory that it shares with the
  learner, as on one machine.
- "one shard, sent": the same, but batches are sent through Ray's object store, as from another machine.
- "4 shards": several shards as the first, each as large, behind one source.

All take turns, so that the machine's load affects all alike; medians are shown, and the median of the ratios of
neighbouring turns.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import ray
import torch
import tyro
from rich.console import Console

from benchmarks.shared.rounds import Goal, Rounds, in_turn, machine
from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker
from storages import PERBuffer
from storages.component.factory import Factory
from storages.sharded import ShardedReplay, ShardGroup, SliceWriter
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2

_GAMMA, _ENVS, _SLICE_STEPS, _WIDTH, _ACTIONS = 0.99, 8, 1_000, 17, 6
_IN_PROCESS, _ONE, _SENT = "in process", "one shard", "one shard, sent"


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
        _SENT: _SentBatches(StorageMaker(factory, _GAMMA), 1),
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
    ratio = rates.ratio(_ONE, _IN_PROCESS)
    rates.goals.append(Goal("one shard serves at least a third of the rate in process", f"{ratio:.2f}", ratio >= 1 / 3))
    rates.print(console)
    for name in groups.keys() - {_ONE}:
        against = statistics.median(rates.ratios(name, _IN_PROCESS))
        console.print(f"{name}: {against:.2f} of the rate in process", highlight=False)
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


class _SentBatches(RayShards):
    """Shards whose batches are sent through Ray's object store, as those of another machine are."""

    exchange = ShardGroup.exchange


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
