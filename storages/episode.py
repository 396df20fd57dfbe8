"""An episode as arrays, the unit of data sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storages.transition import Array

Observations: TypeAlias = Array | Mapping[str, Array]


@dataclass(frozen=True)
class Episode:
    """The steps of one environment from a reset to an end, with each observation stored once.

    Args:
        observations: (L + 1, *obs), or a dict of such: before each of the L steps, and after the last.
        fields: (L, ...), other fields of a step, under the names of :mod:`storages.transition`: ACT, REW, and others.
        terminated: whether it ended in a terminal state.
        truncated: whether it was truncated, for example by a time limit; if neither is true, it is unfinished.
        facts: metadata, such as its seed and its number in its data set.
    """

    observations: Observations
    fields: Mapping[str, Array]
    terminated: bool
    truncated: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of steps."""
        return len(next(iter(self.fields.values())))
