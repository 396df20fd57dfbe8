"""A bar for whatever takes a while, where the output is a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


@contextmanager
def bar(title: str, total: int | None, unit: str, console: Console | None = None) -> Iterator[Callable[[int], None]]:
    """A bar while the context lasts; call what it gives to say how many more are done.

    Args:
        title: what takes a while.
        total: how many there are; None where nobody knows.
        unit: of what.
        console: where to draw; None takes the standard output.
    """
    # As in ProgressDisplay: only the output itself knows whether it is a terminal.
    console = console or Console(force_terminal=sys.stdout.isatty())
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
    """The same items, with a bar while they are gone through."""
    with bar(title, total, unit) as advance:
        for item in items:
            yield item
            advance(1)
