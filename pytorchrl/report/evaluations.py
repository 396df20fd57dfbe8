"""The evaluations of a run, as tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytorchrl.logging.evaluation_table import COLUMNS, evaluations_of, texts_of
from pytorchrl.report.runs import RunRead

_NAMED = re.compile(r"test/(.+)/return")


@dataclass(frozen=True)
class EvaluationTable:
    """Evaluations in the same environments."""

    name: str | None
    """Of an :class:`EvaluateIn`; None for the test environments."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def evaluations_in(run: RunRead) -> list[EvaluationTable]:
    """The evaluations of a run, a table for each choice of environments."""
    metrics = dict.fromkeys(name for record in run.records for name in record)
    names = [None, *(found[1] for name in metrics if (found := _NAMED.fullmatch(name)))]
    tables = []
    for name in names:
        rows = [texts_of(row) for row in evaluations_of(run.records, name)]
        if rows:
            tables.append(EvaluationTable(name, list(COLUMNS), rows))
    return tables
