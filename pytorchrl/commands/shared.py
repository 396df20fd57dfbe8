"""Arguments that several commands take, their checks, and the output of facts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from pytorchrl.terminal import TextConsole

_SETTING = re.compile(r"--(algorithm|actor|storage|env)\.([\w-]+)")

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


def refuse_settings(command: str, arguments: Sequence[str]) -> None:
    """Refuse options of ``train`` for hyper-parameters, which runs that go on keep.

    Raises:
        ValueError: there is one; the message says how it is changed.
    """
    for argument in arguments:
        found = _SETTING.match(argument)
        if found is None:
            continue
        part, name = found[1], found[2].replace("-", "_")
        instead = "begin another run with its weights, by train --from RUN with all settings of the new run"
        if command == "resume" and part in ("algorithm", "storage"):
            change = f"scheme.{part}.update_{part}_parameter({name!r}, ...)"
            instead += f"; or in a script, make its scheme again, {change}, and Learner.resume(RUN, scheme=scheme)"
        raise ValueError(
            f"{command} has no {found[0]}: the run keeps the settings that it began with. To change some, {instead}"
        )
