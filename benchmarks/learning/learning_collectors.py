"""Returns with collectors in other processes, beside a single process: tables in ``docs/collectors.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, and says what was not run. Needs the extra
``ray``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.learning.collectors_tasks import COLLECTORS
from benchmarks.learning.staged_runs import Arguments, make_page


@dataclass
class CollectorsArguments(Arguments):
    """What to run."""

    only: tuple[Literal["cartpole", "pendulum"], ...] = ("cartpole", "pendulum")
    """Tasks to run."""


if __name__ == "__main__":
    arguments = tyro.cli(CollectorsArguments, description=__doc__)
    make_page(COLLECTORS, arguments.only, arguments)
