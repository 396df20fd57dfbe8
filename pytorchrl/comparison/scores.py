"""Scores of a run: final, last ten and best."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from pytorchrl.logging.curves import EVALUATION, TRAINING, Run

ScoreName: TypeAlias = Literal["final", "last_ten"]
LAST = 10
"""Measurements over which "last ten" is a mean."""


@dataclass(frozen=True)
class RunScores:
    """Scores of a run."""

    folder: Path
    seed: int | None
    """None where unknown."""
    final: float
    """The last measurement."""
    last_ten: float
    """Mean of the last ten measurements, or of all where there are fewer."""
    best: float
    """The largest measurement, which is biased: the more a run is measured, the larger it gets."""
    steps: float
    """Training steps up to the last record that counts."""
    seconds: float
    """Training time of those steps; NaN where unknown."""
    target_steps: int | None
    """Steps that the run was meant to be trained for; None where unknown."""
    averaged: int = LAST
    """Number of measurements that the mean of the last ten is of."""
    finite_until: float | None = None
    """Steps of the last finite measurement, where later ones are not finite; None where the last one is."""


def scores_of(run: Run, metric: str, at_steps: int | None = None) -> RunScores:
    """Return the scores of a run by a metric.

    Args:
        run: a run that has measured the metric.
        metric: a name of the run's records.
        at_steps: ignore what was measured after more steps than these.

    Raises:
        ValueError: it was not measured until then.
    """
    curve = run.curve(metric)
    counts = curve.x <= (np.inf if at_steps is None else at_steps)
    if not counts.any():
        raise ValueError(
            f"{run.folder} first measured {metric} after {curve.x[0]:,.0f} steps; raise at_steps, got {at_steps:,}"
        )
    values = curve.values[counts]
    records = [record for record in run.records if at_steps is None or record.get("steps", np.inf) <= at_steps]
    last = next(record[metric] for record in reversed(records) if metric in record)
    seed, target = run.config.get("seed"), run.config.get("target_steps")
    return RunScores(
        folder=run.folder,
        seed=seed if isinstance(seed, int) else None,
        final=float(values[-1]),
        last_ten=float(values[-LAST:].mean()),
        best=float(values.max()),
        steps=float(records[-1].get("steps", np.nan)),
        seconds=float(records[-1].get("seconds", np.nan)),
        target_steps=target if isinstance(target, int) else None,
        averaged=len(values[-LAST:]),
        finite_until=None if np.isfinite(last) else float(curve.x[counts][-1]),
    )


def common_metric(runs: Sequence[Run]) -> str:
    """Return the metric of evaluations' returns where all runs have it, else that of training.

    Raises:
        ValueError: some runs have only the one, and some only the other.
    """
    for metric in (EVALUATION, TRAINING):
        if all(len(run.curve(metric)) for run in runs):
            return metric
    without = next(run.folder for run in runs if not len(run.curve(EVALUATION)))
    raise ValueError(f"{without} has no evaluations, and another run no returns of training; compare them separately")
