"""An episode as plain arrays, the unit of data sets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storages.transition import Array

Observations: TypeAlias = Array | Mapping[str, Array]


@dataclass(frozen=True)
class Episode:
    """The steps of one environment from a reset to an end, with each observation once.

    Args:
        observations: (L + 1, *obs), or a dict of such: before each of the L steps, and after the last.
        fields: (L, ...), other fields of a step, under the names of :mod:`storages.transition`: ACT, REW, and others.
        terminated: whether the environment ended it.
        truncated: whether a limit cut it; if neither is true, the episode is unfinished.
        facts: plain data about it, such as its seed and its number in its data set.
    """

    observations: Observations
    fields: Mapping[str, Array]
    terminated: bool
    truncated: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of steps."""
        return len(next(iter(self.fields.values())))
