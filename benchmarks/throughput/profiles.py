"""Profile a training step of pytorchrl: by stage, by function, and by torch operator."""

import cProfile
import os
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity

import pytorchrl as prl
from benchmarks.throughput.pairs import Pair
from benchmarks.throughput.stopwatch import warm_learner

T = TypeVar("T")

_MOST_ROWS = 10


def print_profile(console: Console, pair: Pair) -> None:
    """Train three times for the pair's ``quick_steps``, each with another profiler, and print the results.

    One profiler at a time: each slows Python calls down, and would shift the shares of the stages.
    """
    for heading, instrument in (
        ("stages", _stages),
        ("functions, by the time in themselves (cProfile, which slows calls down)", _functions),
        ("torch's operators, by the time in themselves (torch.profiler)", _operators),
    ):
        with tempfile.TemporaryDirectory() as folder:
            table = instrument(pair, pair.quick_steps, Path(folder))
        console.print(f"\n{pair.title}: {heading}", highlight=False)
        console.print(table)


def _stages(pair: Pair, steps: int, folder: Path) -> Table:
    """Time the methods that collect and update."""
    learner = warm_learner(pair, 1, steps, folder)
    scheme = learner.scheme
    seconds: dict[str, float] = {}
    for stage, owner, method in (
        ("act", scheme.algorithm, "acting_step"),
        ("step the environments", scheme.envs, "step"),
        ("insert transitions", scheme.storage, "insert_transition"),
        ("returns and advantages", scheme.storage, "before_gradients"),
        ("update", scheme.algorithm, "update"),
        ("after an update", scheme.storage, "after_gradients"),
    ):
        setattr(owner, method, _timed(getattr(owner, method), stage, seconds))
    scheme.storage.generate_batches = _timed_iterator(  # type: ignore[method-assign]
        scheme.storage.generate_batches, "sample batches", seconds
    )
    started = time.perf_counter()
    _finish(learner)
    total = time.perf_counter() - started
    learner.close()
    seconds["loop, metrics"] = total - sum(seconds.values())
    table = Table(box=SIMPLE)
    table.add_column("stage")
    table.add_column("us/step", justify="right")
    table.add_column("share", justify="right")
    for stage, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        table.add_row(stage, f"{spent / steps * 1e6:,.1f}", f"{spent / total:.1%}")
    return table


def _functions(pair: Pair, steps: int, folder: Path) -> Table:
    """Return the functions with the largest own time, by cProfile."""
    learner = warm_learner(pair, 1, steps, folder)
    profiler = cProfile.Profile()
    profiler.enable()
    _finish(learner)
    profiler.disable()
    learner.close()
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]]
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in stats.values())
    table = _ranking()
    by_own_time = sorted(stats.items(), key=lambda item: -item[1][2])
    for (file, line, name), (_, calls, own, _, _) in by_own_time[:_MOST_ROWS]:
        where = name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        table.add_row(where, f"{calls / steps:.2f}", f"{own / steps * 1e6:,.1f}", f"{own / total:.1%}")
    return table


def _operators(pair: Pair, steps: int, folder: Path) -> Table:
    """Return the operators with the largest own time, by torch.profiler."""
    learner = warm_learner(pair, 1, steps, folder)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler logs between the tables
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        _finish(learner)
    learner.close()
    operators = sorted(profiler.key_averages(), key=lambda operator: -operator.self_cpu_time_total)
    total = sum(operator.self_cpu_time_total for operator in operators)
    table = _ranking()
    for operator in operators[:_MOST_ROWS]:
        own = operator.self_cpu_time_total
        table.add_row(operator.key, f"{operator.count / steps:.2f}", f"{own / steps:,.1f}", f"{own / total:.1%}")
    return table


def _ranking() -> Table:
    table = Table(box=SIMPLE)
    table.add_column("where", overflow="fold")
    for heading in ("calls/step", "us/step", "share"):
        table.add_column(heading, justify="right")
    return table


def _finish(learner: prl.Learner) -> None:
    while not learner.done():
        learner.step()


def _timed(call: Callable[..., T], stage: str, seconds: dict[str, float]) -> Callable[..., T]:
    seconds.setdefault(stage, 0.0)

    def timed(*args: Any, **kwargs: Any) -> T:
        started = time.perf_counter()
        result = call(*args, **kwargs)
        seconds[stage] += time.perf_counter() - started
        return result

    return timed


def _timed_iterator(
    call: Callable[..., Iterator[T]], stage: str, seconds: dict[str, float]
) -> Callable[..., Iterator[T]]:
    """Time an iterator, which does its work when the next item is asked for; see :func:`_timed`."""

    def timed(*args: Any, **kwargs: Any) -> Iterator[T]:
        items = call(*args, **kwargs)
        next_item = _timed(lambda: next(items, None), stage, seconds)
        while (item := next_item()) is not None:
            yield item

    return timed
