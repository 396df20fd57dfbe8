"""Hyper-parameters are converted to the type of their annotation, or raise an error that states what is required."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypeVar, Union

import numpy as np
import pytest

from storages import Factory, LinearSchedule, ReplayBuffer, Schedule
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    InitialError,
    LimitOrSchedule,
    MisfitError,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
    WholeCount,
    Within,
    conform,
)

FACTORY = ReplayBuffer.create_factory(5)
FALLING = LinearSchedule(0.5, 0.1)
T = TypeVar("T")


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, 3),
        (np.int32(3), int, 3),
        (3, float, 3.0),
        (np.float32(0.5), float, 0.5),
        (np.int64(2), float, 2.0),
        (True, bool, True),
        (np.True_, bool, True),
        ("a", str, "a"),
        (None, None, None),
        (None, int | None, None),
        (3, int | None, 3),
        (3, Optional[float], 3.0),  # noqa: UP045
        ("a", Union[int, str], "a"),  # noqa: UP007
        (Path("a/b"), str | Path | None, "a/b"),
        ("a/b", str | Path | None, "a/b"),
        (3, float | int, 3),
        (3.5, float | int, 3.5),
        ([1, 2], tuple[int, ...], (1, 2)),
        ((1, 2), Sequence[float], (1.0, 2.0)),
        ([], Sequence[int], ()),
        ([[1], [2, 3]], Sequence[Sequence[int]], ((1,), (2, 3))),
        ([1, None], Sequence[int | None], (1, None)),
        ({"a": 1}, Mapping[str, Any], {"a": 1}),
        ("fast", Literal["fast", "slow"], "fast"),
        (2, Literal[1, 2], 2),
        (object, Any, object),
        (object, T, object),
        (len, Callable[[Any], int], len),
        (dict, type[dict], dict),
        (FACTORY, Factory[Any], FACTORY),
        (FACTORY, Factory[Any] | None, FACTORY),
        (FALLING, Schedule, FALLING),
        (FALLING, NonNegativeOrSchedule, FALLING),
        (1, UnitIntervalOrSchedule, 1.0),
        (0.5, Annotated[float, Within(0, 1, open=True)], 0.5),
        (-2, Annotated[float, Within(-2, -1)], -2.0),
        (float("inf"), LimitOrSchedule, float("inf")),
        (float("inf"), Annotated[float, Within(0)], float("inf")),
        (-float("inf"), Annotated[float, Within(-float("inf"), 0)], -float("inf")),
        (1, Count, 1),
        (1e6, WholeCount, 1_000_000),
        (np.float32(3), WholeCount, 3),
        (3.0, WholeCount | None, 3),
        (0, CountOrZero, 0),
        (0, NonNegative, 0.0),
        (1, UnitInterval, 1.0),
        (0.1, Positive, 0.1),
        ([1, 2], Sequence[Count], (1, 2)),
    ],
)
def test_values_are_converted_to_the_type_of_their_annotation(value: Any, annotation: Any, expected: Any) -> None:
    conformed = conform(value, annotation)
    assert conformed == expected
    assert type(conformed) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (True, int, "must be an int, got True"),
        (3.0, int, "must be an int, got 3.0"),
        ("3", int, "must be an int, got '3'"),
        (True, float, "must be a float, got True"),
        (None, float, "must be a float, got None"),
        (1, bool, "must be a bool, got 1"),
        (1, str, "must be a str, got 1"),
        (1, None, "must be None, got 1"),
        (5, str | None, "must be a str, got 5"),
        ([], int | str, r"must be an int, or must be a str, got \[\]"),
        (5, Mapping[str, Any], "must be a Mapping, got 5"),
        ("quick", Literal["fast", "slow"], "must be one of 'fast', 'slow', got 'quick'"),
        ([1], Literal["fast"], r"must be one of 'fast', got \[1\]"),
        ("12", Sequence[int], "must be a sequence, got '12'"),
        (3, tuple[int, ...], "must be a sequence, got 3"),
        ({1, 2}, Sequence[int], "must be a sequence, got {1, 2}"),
        ([1, "a"], Sequence[int], "holds a value that must be an int, got 'a'"),
        ([1, 0], Sequence[Count], "holds a value that must be at least 1, got 0"),
        ([[1], [0]], Sequence[Sequence[Count]], "holds a value that holds a value that must be at least 1, got 0"),
        (3, Callable[..., Any], "must be callable, got 3"),
        (3, Factory[Any], "must be a Factory, got 3"),
        (FALLING, float, "must be a float, got LinearSchedule"),
        ("x", NonNegativeOrSchedule, "must be a float, or must be a Schedule, got 'x'"),
        (LinearSchedule(1.0, -1.0), NonNegativeOrSchedule, "must be at least 0, got LinearSchedule"),
        (LinearSchedule(1.5, 1.0), UnitIntervalOrSchedule, r"must lie in \[0, 1\], got LinearSchedule"),
        (-0.1, NonNegative, "must be at least 0, got -0.1"),
        (float("nan"), float, "must be a number, got nan"),
        (float("nan"), float | None, "must be a number, got nan"),
        (float("nan"), NonNegative, "must be a number, got nan"),
        (1.1, UnitInterval, r"must lie in \[0, 1\], got 1.1"),
        (np.float32("nan"), UnitInterval, "must be a number, got nan"),
        (float("inf"), UnitInterval, r"must lie in \[0, 1\], got inf"),
        (1, Annotated[float, Within(0, 1, open=True)], r"must lie in \(0, 1\), got 1"),
        (0, Positive, "must be greater than 0, got 0"),
        (-1, CountOrZero, "must be at least 0, got -1"),
        (0, Count | None, "must be at least 1, got 0"),
        (0.0, WholeCount, "must be at least 1, got 0"),
        (3.5, WholeCount | None, "must be an int, got 3.5"),
        (float("inf"), WholeCount, "must be an int, got inf"),
        (float("inf"), NonNegativeOrSchedule, "must be finite, got inf"),
        (float("inf"), NonNegative | None, "must be finite, got inf"),
        (float("inf"), Positive, "must be finite, got inf"),
        (float("inf"), InitialError, "must be finite, or must be one of 'largest', 'first', got inf"),
        (2, UnitInterval | None, r"must lie in \[0, 1\], got 2$"),
        (np.float64(2), UnitInterval | None, r"must lie in \[0, 1\], got [^,]*$"),
    ],
)
def test_invalid_values_raise_an_error_that_states_what_is_required(value: Any, annotation: Any, message: str) -> None:
    with pytest.raises(MisfitError, match=f"^{message}"):
        conform(value, annotation)
