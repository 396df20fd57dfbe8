"""What a hyper-parameter may be: annotations that are written where it is declared.

They are checked when a factory is made, by :func:`storages.component.annotations.conform`.
"""

from typing import Annotated, Literal

from storages.component.annotations import MisfitError, Within, conform
from storages.component.schedule import Schedule

__all__ = [
    "Count",
    "CountOrZero",
    "InitialError",
    "MisfitError",
    "NonNegative",
    "NonNegativeOrSchedule",
    "Positive",
    "UnitInterval",
    "UnitIntervalOrSchedule",
    "Within",
    "conform",
]

Count = Annotated[int, Within(1)]
"""A whole number from 1."""
CountOrZero = Annotated[int, Within(0)]
"""A whole number from 0."""
UnitInterval = Annotated[float, Within(0, 1)]
"""A number from 0 to 1, both included."""
Positive = Annotated[float, Within(0, open=True)]
"""A number greater than 0."""
NonNegative = Annotated[float, Within(0)]
"""A number from 0."""
NonNegativeOrSchedule = Annotated[float | Schedule, Within(0)]
"""A number from 0, or one that changes over a run."""
UnitIntervalOrSchedule = Annotated[float | Schedule, Within(0, 1)]
"""A number from 0 to 1, or one that changes over a run."""
InitialError = Annotated[float, Within(0, open=True)] | Literal["largest", "first"]
"""The error of a transition that no update has met yet."""
