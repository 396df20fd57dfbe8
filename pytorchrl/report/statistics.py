"""Statistical comparison of compositions over their seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.comparison.comparison import compare_groups
from pytorchrl.comparison.tables import Table, tables_of
from pytorchrl.logging.curves import Run
from pytorchrl.logging.groups import Group
from pytorchrl.report.groups import RunGroup


@dataclass(frozen=True)
class Statistics:
    """Statistics of the runs in an environment."""

    tables: Sequence[Table]
    """Scores with bootstrap intervals, and probabilities of improvement; empty where no return was measured."""
    notes: Sequence[str]
    """Notes on the numbers, such as too few seeds."""


def statistics_of(groups: Sequence[RunGroup]) -> Statistics:
    """Compare the compositions of an environment by the runs that have measured a return."""
    measured = [
        Group(group.label, group.environment, runs)
        for group in groups
        if (runs := tuple(run.measured for run in group.runs if _has_return(run.measured)))
    ]
    if not measured:
        return Statistics([], [])
    try:
        comparison = compare_groups(measured)
    except ValueError as error:
        # Some runs have only evaluations, others have none.
        return Statistics([], [str(error)])
    return Statistics(tables_of(comparison), comparison.notes)


def _has_return(run: Run) -> bool:
    return len(run.evaluations()) > 0 or len(run.training()) > 0
