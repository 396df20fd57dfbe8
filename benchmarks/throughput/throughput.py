"""Environment steps per second of pytorchrl beside stable-baselines3 and CleanRL, in one run on one torch thread.

Repetitions alternate between the libraries, so that changes of the machine's load affect both; the ratio is the median
of those of neighbouring repetitions, to the faster of both. Only training is timed: no evaluation, no plots, no
checkpoint and no compilation. See ``pairs.py`` for what is the same in both, and ``cleanrl_control.py`` for CleanRL.
"""

import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.shared.rounds import wide_console
from benchmarks.throughput.matrix_products import Floor, measure_floor
from benchmarks.throughput.pairs import PAIRS, Pair, PairName
from benchmarks.throughput.stopwatch import cleanrl_speed, our_speed, their_speed


@dataclass
class Arguments:
    """What to measure."""

    only: PairName | None = None
    """Measure one pair alone."""
    repetitions: int = 5
    """Of each library, from 3; ``quick`` makes it 1."""
    quick: bool = False
    """Show in half a minute that everything works; the figures mean little."""
    json: Path | None = None
    """Write the figures here too."""


@dataclass(frozen=True)
class Comparison:
    """Environment steps per second, one entry for each repetition."""

    pair: Pair
    ours: list[float]
    theirs: list[float]
    cleanrl: list[float]
    """Empty where the pair has no such script."""

    @property
    def ratios(self) -> list[float]:
        """Return the ratios of neighbouring repetitions, sorted."""
        fastest = [max(speeds) for speeds in zip(self.theirs, self.cleanrl or self.theirs, strict=True)]
        return sorted(ours / theirs for ours, theirs in zip(self.ours, fastest, strict=True))

    @property
    def ratio(self) -> float:
        """The median of the ratios; a ratio of medians may pair a fast minute of the machine with a slow one."""
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool:
        """Whether the target is reached."""
        return self.ratio >= self.pair.target_ratio


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    if arguments.repetitions < 3:
        raise SystemExit(f"--repetitions must be at least 3 for a median, got {arguments.repetitions}")
    torch.set_num_threads(1)
    console = wide_console()
    machine = _machine()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)

    names: list[PairName] = [arguments.only] if arguments.only else list(PAIRS)
    if find_spec("mujoco") is None:
        console.print("What needs MuJoCo is left out: the package mujoco is not installed")
        names = [name for name in names if "HalfCheetah" not in PAIRS[name].title]
    repetitions = 1 if arguments.quick else arguments.repetitions
    comparisons = {name: _compare(console, PAIRS[name], repetitions, arguments.quick) for name in names}
    console.print(_table(comparisons.values()))
    floor = measure_floor(*((3, 20) if arguments.quick else (9, 100))) if "sac" in names else None
    if floor is not None:
        console.print(_sentence(floor), highlight=False)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_figures(machine, comparisons, floor), indent=2) + "\n")


def _compare(console: Console, pair: Pair, repetitions: int, quick: bool) -> Comparison:
    comparison = Comparison(pair, [], [], [])
    steps = _steps(pair, quick)
    for repetition in range(1, repetitions + 1):
        comparison.ours.append(our_speed(pair, repetition, steps))
        comparison.theirs.append(their_speed(pair, repetition, steps))
        speeds = [f"pytorchrl {comparison.ours[-1]:,.0f}", f"stable-baselines3 {comparison.theirs[-1]:,.0f}"]
        if pair.cleanrl is not None:
            comparison.cleanrl.append(cleanrl_speed(pair.cleanrl(repetition), pair.warm_up_steps, steps))
            speeds.append(f"CleanRL's loop {comparison.cleanrl[-1]:,.0f}")
        console.print(
            f"{pair.title}, {steps:,} steps, repetition {repetition} of {repetitions}: {', '.join(speeds)} steps/s",
            highlight=False,
        )
    return comparison


def _steps(pair: Pair, quick: bool) -> int:
    return pair.quick_steps if quick else pair.steps


def _table(comparisons: Iterable[Comparison]) -> Table:
    table = Table(title="Environment steps per second, one torch thread, medians", title_justify="left")
    table.add_column("pair")
    for heading in ("pytorchrl", "stable-baselines3", "CleanRL", "ratio", "lowest to highest", "target", "met"):
        table.add_column(heading, justify="right")
    for comparison in comparisons:
        table.add_row(
            comparison.pair.title,
            f"{statistics.median(comparison.ours):,.0f}",
            f"{statistics.median(comparison.theirs):,.0f}",
            f"{statistics.median(comparison.cleanrl):,.0f}" if comparison.cleanrl else "-",
            f"{comparison.ratio:.2f}x",
            f"{comparison.ratios[0]:.2f} to {comparison.ratios[-1]:.2f}",
            f"{comparison.pair.target_ratio:g}x",
            "yes" if comparison.is_met else "no",
        )
    return table


def _sentence(floor: Floor) -> str:
    return (
        f"SAC's update takes {floor.update_us:,.0f} us, its {floor.products} matrix products alone "
        f"{floor.products_us:,.0f} us ({floor.gflop:.2f} Gflop at {floor.gflop / floor.products_us * 1e6:,.0f} "
        f"Gflop/s): {floor.ratio:.2f} times the bare products."
    )


def _machine() -> dict[str, str]:
    """Return the machine and the versions that the figures depend on."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    packages = {name: version(name) for name in ("torch", "stable-baselines3", "gymnasium", "numpy")}
    return {
        "torch threads": str(torch.get_num_threads()),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load average": load,
        "Python": platform.python_version(),
        **packages,
    }


def _processor() -> str:
    """Return the name of the processor, which only Linux tells without another program."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _figures(
    machine: dict[str, str], comparisons: Mapping[PairName, Comparison], floor: Floor | None
) -> dict[str, Any]:
    return {
        "machine": machine,
        "steps_per_second": {
            name: {
                "pytorchrl": comparison.ours,
                "stable-baselines3": comparison.theirs,
                "cleanrl": comparison.cleanrl,
                "ratio": comparison.ratio,
                "target_ratio": comparison.pair.target_ratio,
                "met": comparison.is_met,
            }
            for name, comparison in comparisons.items()
        },
        "sac_update": asdict(floor) | {"ratio": floor.ratio} if floor is not None else None,
    }


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
