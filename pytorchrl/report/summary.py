"""What became of each run, in a row, and of each group of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytorchrl.logging.evaluation_table import evaluations_of
from pytorchrl.report.groups import RunGroup
from pytorchrl.report.runs import RunRead

LAST = 10
"""Evaluations over which a mean is shown."""


@dataclass(frozen=True)
class Returns:
    """Mean returns of a run's evaluations; of training episodes where it has made none."""

    of: str
    """"evaluations" or "training"."""
    final: float
    mean_of_last: float
    best: float


@dataclass(frozen=True)
class Row:
    """A run in the table of all."""

    name: str
    group: str
    environment: str
    seed: int
    steps: int
    target_steps: int
    seconds: float
    state: str
    returns: Returns | None


def rows_of(groups: Sequence[RunGroup]) -> list[Row]:
    """A row for each run."""
    return [
        Row(
            name=run.name,
            group=group.label,
            environment=group.environment,
            seed=run.config["seed"],
            steps=run.steps,
            target_steps=run.config["target_steps"],
            seconds=run.seconds,
            state=_state(run),
            returns=returns_of(run),
        )
        for group in groups
        for run in group.runs
    ]


def returns_of(run: RunRead) -> Returns | None:
    """Final, mean of the last, and best; None where the run has not measured a return yet."""
    kind, values = "evaluations", [row["mean"] for row in evaluations_of(run.records)]
    if not values:
        kind, values = "training", [float(value) for value in run.measured.training().values]
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return None
    return Returns(kind, finite[-1], float(np.mean(finite[-LAST:])), max(finite))


def _state(run: RunRead) -> str:
    if run.error is not None:
        return "failed"
    return "finished" if run.steps >= run.config["target_steps"] else "not finished"
