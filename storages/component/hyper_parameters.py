"""Annotations for types and ranges of hyper-parameters.

They are checked when a factory is made, by :func:`storages.component.annotations.conform`.
"""

from typing import Annotated, Literal

from storages.component.annotations import Finite, MisfitError, Whole, Within, conform
from storages.component.schedule import Schedule

__all__ = [
    "Count",
    "CountOrZero",
    "Finite",
    "HalfOpenUnitInterval",
    "InitialError",
    "Limit",
    "LimitOrSchedule",
    "MisfitError",
    "NonNegative",
    "NonNegativeOrSchedule",
    "Positive",
    "UnitInterval",
    "UnitIntervalOrSchedule",
    "WholeCount",
    "Within",
    "conform",
]

Count = Annotated[int, Within(1)]
"""An integer of at least 1."""
CountOrZero = Annotated[int, Within(0)]
"""An integer of at least 0."""
WholeCount = Annotated[int, Whole(), Within(1)]
"""An integer of at least 1, or a float without a fraction, such as 1e6, which is converted."""
UnitInterval = Annotated[float, Within(0, 1)]
"""A number in [0, 1]."""
HalfOpenUnitInterval = Annotated[UnitInterval, Within(-float("inf"), 1, open=True)]
"""A number in [0, 1)."""
Positive = Annotated[float, Finite(), Within(0, open=True)]
"""A finite number greater than 0."""
NonNegative = Annotated[float, Finite(), Within(0)]
"""A finite number of at least 0."""
NonNegativeOrSchedule = Annotated[float | Schedule, Finite(), Within(0)]
"""A finite number of at least 0, or a schedule of such."""
Limit = Annotated[float, Within(0)]
"""A number of at least 0, infinite for no limit."""
LimitOrSchedule = Annotated[float | Schedule, Within(0)]
"""A number of at least 0, infinite for no limit, or a schedule of such."""
UnitIntervalOrSchedule = Annotated[float | Schedule, Within(0, 1)]
"""A number in [0, 1], or a schedule of such."""
InitialError = Positive | Literal["largest", "first"]
"""The error of a transition that has not been in an update yet."""
