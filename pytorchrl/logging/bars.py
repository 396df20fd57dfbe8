"""Progress bars of slow operations, shown where the output is a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pytorchrl.terminal import TextConsole

Item = TypeVar("Item")


@contextmanager
def bar(title: str, total: int | None, unit: str, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a context, which gives a function to advance it by a number of items.

    Args:
        title: the operation.
        total: the number of items; None where unknown.
        unit: what the items are.
        console: where to draw; None takes the standard output.
    """
    # FORCE_COLOR and its like make rich take pipes for terminals, as in ProgressDisplay.
    console = console or TextConsole(force_terminal=sys.stdout.isatty())
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.advance(task, done)


def watched(items: Iterable[Item], title: str, total: int | None, unit: str) -> Iterator[Item]:
    """Yield the items, and show a progress bar meanwhile."""
    with bar(title, total, unit) as advance:
        for item in items:
            yield item
            advance(1)
