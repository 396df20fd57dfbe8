"""The evaluations of a run, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.logging.tables.evaluation_table import COLUMNS, evaluation_names, evaluations_of, texts_of
from pytorchrl.report.runs import RunRead


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
