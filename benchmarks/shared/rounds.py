"""Measurements in turn, so that changes of the machine's load affect all alike, and their results."""

import gc
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Goal:
    """A target, and the figure that was measured for it.

    Args:
        target: the figure and its target, in words.
        reached: the figure, in words.
        met: whether the target is met.
    """

    target: str
    reached: str
    met: bool

    def __str__(self) -> str:
        return f"target: {self.target}: {self.reached}, {'met' if self.met else 'NOT MET'}"


@dataclass
class Rounds:
    """Figures of each row, one per round, and their goals.

    Args:
        title: what was measured.
        heading: of the column of medians.
        shown: formats a figure of that column.
        rows: figures, by name.
        remarks_on: heading of the column of remarks; None for no such column.
        remarks: remarks on rows, by name.
        goals: the goals, with what was measured.
    """

    title: str
    heading: str
    shown: Callable[[float], str]
    rows: dict[str, list[float]]
    remarks_on: str | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)

    def median(self, name: str) -> float:
        """Return the median figure of a row."""
        return statistics.median(self.rows[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median over rounds of the ratio of two rows, which met the same load in each round."""
        return statistics.median(self.ratios(name, other))

    def ratios(self, name: str, other: str) -> list[float]:
        """Return the ratios of all rounds, sorted."""
        return sorted(one / two for one, two in zip(self.rows[name], self.rows[other], strict=True))

    def print(self, console: Console) -> None:
        """Print the title, the table and the goals."""
        console.print(self.title, style="italic", highlight=False)
        console.print(self.table(), highlight=False)
        for goal in self.goals:
            console.print(str(goal), highlight=False)

    def table(self) -> Table:
        """Return the table of all rows."""
        table = Table()
        table.add_column("")
        several = any(len(figures) > 1 for figures in self.rows.values())
        for heading in (self.heading, "quickest to slowest") if several else (self.heading,):
            table.add_column(heading, justify="right", no_wrap=True)
        if self.remarks_on is not None:
            table.add_column(self.remarks_on)
        for name, figures in self.rows.items():
            cells = [self.shown(self.median(name))]
            if several:
                cells.append(f"{self.shown(min(figures))} to {self.shown(max(figures))}")
            if self.remarks_on is not None:
                cells.append(self.remarks.get(name, ""))
            table.add_row(name, *cells)
        return table

    def figures(self) -> dict[str, object]:
        """Return all figures, for a file."""
        return {"unit": self.heading, "rows": self.rows, "goals": [asdict(goal) for goal in self.goals]}


def wide_console() -> Console:
    """Return a console on which tables fit, also where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=110)


def in_turn(work: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the figures of some rounds, in each of which every row is measured once."""
    rows: dict[str, list[float]] = {name: [] for name in work}
    # Each collection would visit all objects of the imported libraries, which takes longer than many measurements.
    gc.freeze()
    for _ in range(rounds):
        for name, measure in work.items():
            gc.collect()
            rows[name].append(measure())
    gc.unfreeze()
    return rows


def machine(*packages: str) -> dict[str, str]:
    """Return the machine, its load, and the versions of some packages."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "torch threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "load average": load,
        **versions(*packages),
    }


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"Python": platform.python_version(), **dict(_versions(packages))}


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
