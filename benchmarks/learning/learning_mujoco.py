"""Returns of policy gradients and actor-critics in MuJoCo, beside their peers, in ``docs/mujoco.md``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. All runs take about five hours of two cores.
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
class MujocoArguments(Arguments):
    """What to run."""

    only: tuple[Literal["halfcheetah", "hopper", "hopper-efficient"], ...] = (
        "halfcheetah",
        "hopper",
        "hopper-efficient",
    )
    """Tasks to run."""


if __name__ == "__main__":
    arguments = tyro.cli(MujocoArguments, description=__doc__)
    make_page("mujoco", arguments.only, arguments)
