"""What strategies of replay change: tables and curves in ``docs/replay-strategies.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, whichever command did it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.learning.learning_table import Arguments, make_page

_Name = Literal["asterix", "breakout", "spaceinvaders", "halfcheetah", "hopper"]


@dataclass
class StrategiesArguments(Arguments):
    """What to run."""

    only: tuple[_Name, ...] = ("asterix", "breakout", "spaceinvaders", "halfcheetah", "hopper")
    """Tasks to run."""


if __name__ == "__main__":
    arguments = tyro.cli(StrategiesArguments, description=__doc__)
    make_page("replay-strategies", arguments.only, arguments)
