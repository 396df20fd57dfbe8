"""One whole episode as plain arrays: what data sets are read from and written as."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from storages.transition import Array

Observations: TypeAlias = Array | Mapping[str, Array]


@dataclass(frozen=True)
class Episode:
    """What one environment did from a reset to an end, each observation once.

    Args:
        observations: (L + 1, *obs), or a dict of such: what was seen before each of the L steps, and after the last.
        fields: (L, ...), what else a step has, under the names of :mod:`storages.transition`: ACT, REW, and others.
        terminated: whether the environment ended it.
        truncated: whether a limit cut it; where neither is so, it had not ended yet.
        facts: plain data about it: its seed, its number in the data set that it came from.
    """

    observations: Observations
    fields: Mapping[str, Array]
    terminated: bool
    truncated: bool
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Steps."""
        return len(next(iter(self.fields.values())))
