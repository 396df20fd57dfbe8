"""Returns over the seeds of each composition, with bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytorchrl.logging.bootstrap import Estimate, estimate
from pytorchrl.report.groups import RunGroup
from pytorchrl.report.summary import Returns, returns_of


@dataclass(frozen=True)
class GroupStatistics:
    """Interquartile means of returns over the runs of a composition."""

    label: str
    runs: int
    """Those that have measured a return."""
    returns: Sequence[Estimate]
    """Of the final evaluations, of the means of the last ones, and of the best; empty where there is no run."""


def statistics_of(groups: Sequence[RunGroup]) -> list[GroupStatistics]:
    """A row for each composition of an environment, that with the largest final return first."""
    rows = []
    for group in groups:
        found = [returns for run in group.runs if (returns := returns_of(run)) is not None]
        rows.append(GroupStatistics(group.label, len(found), _estimates(found)))
    return sorted(rows, key=lambda row: -row.returns[0].value if row.returns else np.inf)


def _estimates(found: Sequence[Returns]) -> list[Estimate]:
    if not found:
        return []
    columns = zip(*((one.final, one.mean_of_last, one.best) for one in found), strict=True)
    return [estimate([np.array(column)]) for column in columns]
