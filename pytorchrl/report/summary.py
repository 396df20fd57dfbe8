"""What became of each run, in a row, and of each group of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.comparison.scores import scores_of
from pytorchrl.logging.curves import EVALUATION, TRAINING
from pytorchrl.report.groups import RunGroup
from pytorchrl.report.runs import RunRead


@dataclass(frozen=True)
class Returns:
    """What a run's evaluations came to; of training episodes where it has made none."""

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
    for kind, metric in (("evaluations", EVALUATION), ("training", TRAINING)):
        if len(run.measured.curve(metric)):
            scores = scores_of(run.measured, metric)
            return Returns(kind, scores.final, scores.last_ten, scores.best)
    return None


def _state(run: RunRead) -> str:
    if run.error is not None:
        return "failed"
    return "finished" if run.steps >= run.config["target_steps"] else "not finished"
