"""Gains of online learning after offline learning: tables in ``docs/offline-to-online.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, and says what was not run.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.learning.online_tasks import ONLINE
from benchmarks.learning.staged_runs import Arguments, make_page


@dataclass
class OnlineArguments(Arguments):
    """What to run."""

    only: tuple[Literal["pendulum", "half-cheetah", "hopper"], ...] = ("pendulum",)
    """Tasks to run; "half-cheetah" and "hopper" take hours."""


if __name__ == "__main__":
    arguments = tyro.cli(OnlineArguments, description=__doc__)
    make_page(ONLINE, arguments.only, arguments)
