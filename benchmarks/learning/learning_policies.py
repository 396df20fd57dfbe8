"""Returns of policy gradients, actor-critics and models: tables and curves in ``docs/policy-learning.md``.

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


@dataclass
class PoliciesArguments(Arguments):
    """What to run."""

    only: tuple[Literal["cartpole", "mountaincar", "pendulum", "pendulum-few"], ...] = (
        "cartpole",
        "mountaincar",
        "pendulum",
        "pendulum-few",
    )
    """Tasks to run."""


if __name__ == "__main__":
    arguments = tyro.cli(PoliciesArguments, description=__doc__)
    make_page("policy-learning", arguments.only, arguments)
