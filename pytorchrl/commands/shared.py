"""Arguments that several commands take, their checks, and the output of facts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from pytorchrl.terminal import TextConsole

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""A run folder."""
DataSets = Annotated[tuple[str, ...], tyro.conf.arg(metavar="PATH...", help_behavior_hint="")]
"""Data sets that a run learns from."""
Imports = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="import",
        metavar="MODULE",
        help="a module of yours, or a file, which defines classes or registers environments; several are separated by "
        "commas, or named by the option given again",
    ),
    tyro.conf.UseAppendAction,
]
"""Modules that a command imports first, by ``import_modules``."""

STOPPED = 130
"""Exit status of a command that Ctrl-C or SIGTERM stopped: that of shells for Ctrl-C. Scripts must not go on after it,
and the same command continues."""


def check_counts(**counts: int | None) -> None:
    """Check that counts are at least 1; None is not checked.

    Raises:
        ValueError: the message names the option and its value.
    """
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def check_seed(seed: int) -> None:
    """Check that a seed is not negative.

    Raises:
        ValueError: it is.
    """
    if seed < 0:
        raise ValueError(f"--seed must be at least 0, got {seed}")


def print_facts(title: str, facts: Mapping[str, str]) -> None:
    """Print a title, a line for each fact, and an empty line."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    console = TextConsole()
    console.print(table)
    console.print()
