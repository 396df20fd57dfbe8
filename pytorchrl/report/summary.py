"""The table of all runs: steps, state and returns of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.comparison.scores import scores_of
from pytorchrl.logging.curves import EVALUATION, TRAINING
from pytorchrl.report.groups import RunGroup
from pytorchrl.report.runs import RunRead


@dataclass(frozen=True)
class Returns:
    """Returns of a run's evaluations; of training episodes where it has no evaluations."""

    of: str
    """"evaluations" or "training"."""
    final: float
    mean_of_last: float
    best: float
    finite_until: float | None
    """Steps of the last finite return, where later ones are not finite; None where the last one is."""


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
    """Return the final, last-ten and best return of a run; None where it has not measured one yet."""
    for kind, metric in (("evaluations", EVALUATION), ("training", TRAINING)):
        if len(run.measured.curve(metric)):
            scores = scores_of(run.measured, metric)
            return Returns(kind, scores.final, scores.last_ten, scores.best, scores.finite_until)
    return None


def _state(run: RunRead) -> str:
    if run.error is not None:
        return "failed"
    return "finished" if run.steps >= run.config["target_steps"] else "not finished"
