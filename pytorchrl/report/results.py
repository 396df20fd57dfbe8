"""Results of runs: the table of all runs, evaluations, and statistics over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.comparison.comparison import compare_groups
from pytorchrl.comparison.scores import scores_of
from pytorchrl.comparison.tables import Table, tables_of
from pytorchrl.logging.curves import EVALUATION, TRAINING, Run
from pytorchrl.logging.groups import Group
from pytorchrl.logging.tables.evaluation_table import COLUMNS, evaluation_names, evaluations_of, texts_of
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


@dataclass(frozen=True)
class EvaluationTable:
    """Evaluations in the same environments."""

    name: str | None
    """Name of an :class:`EvaluateIn`; None for the test environments."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def evaluations_in(run: RunRead) -> list[EvaluationTable]:
    """Return the evaluations of a run, a table for each choice of environments."""
    return [
        EvaluationTable(name, list(COLUMNS), [texts_of(row) for row in evaluations_of(run.records, name)])
        for name in evaluation_names(run.records)
    ]


@dataclass(frozen=True)
class Statistics:
    """Statistics of the runs in an environment."""

    tables: Sequence[Table]
    """Scores with bootstrap intervals, and probabilities of improvement; empty where no return was measured."""
    notes: Sequence[str]
    """Notes on the numbers, such as too few seeds."""
    answer: str
    """Which composition is best, and how sure that is."""


def statistics_of(groups: Sequence[RunGroup]) -> Statistics:
    """Compare the compositions of an environment by the runs that have measured a return."""
    measured = [
        Group(group.label, group.environment, runs)
        for group in groups
        if (runs := tuple(run.measured for run in group.runs if _has_return(run.measured)))
    ]
    if not measured:
        return Statistics([], [], "No return was measured yet.")
    try:
        comparison = compare_groups(measured)
    except ValueError as error:
        # Some runs have only evaluations, others have none.
        return Statistics([], [str(error)], str(error))
    return Statistics(tables_of(comparison), comparison.notes, comparison.answer)


def _has_return(run: Run) -> bool:
    return len(run.evaluations()) > 0 or len(run.training()) > 0
