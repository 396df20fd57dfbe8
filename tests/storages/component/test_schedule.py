"""Schedules: numbers that depend only on the progress of a run."""

from typing import Any

import pytest

from storages import LinearSchedule, Schedule
from storages.component.schedule import value_at


def test_a_linear_schedule_is_linear_and_then_constant() -> None:
    schedule = LinearSchedule(1.0, 0.2, fraction=0.5)
    assert isinstance(schedule, Schedule)
    assert [schedule.at(steps, 100) for steps in (0, 25, 50, 100, 200)] == pytest.approx([1.0, 0.6, 0.2, 0.2, 0.2])
    assert schedule.extremes == (1.0, 0.2)


def test_value_at_accepts_numbers_and_schedules() -> None:
    assert [value_at(0.3, steps, 100) for steps in (0, 50, 100)] == [0.3, 0.3, 0.3]
    assert value_at(LinearSchedule(1.0, 0.2, fraction=0.5), 25, 100) == pytest.approx(0.6)


def test_a_schedule_may_rise_and_a_run_may_have_zero_steps() -> None:
    assert [LinearSchedule(0.4, 1.0).at(steps, 10) for steps in (0, 5, 10)] == pytest.approx([0.4, 0.7, 1.0])
    assert LinearSchedule(1.0, 0.0).at(0, 0) == 1.0


@pytest.mark.parametrize("fraction", [0, -0.5, 1.1])
def test_a_fraction_out_of_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"LinearSchedule: fraction must lie in \(0, 1\], got "):
        LinearSchedule(1.0, 0.0, fraction=fraction)


@pytest.mark.parametrize("arguments", [("much", 0.0), (1.0, None)])
def test_initial_and_final_values_must_be_numbers(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"LinearSchedule: (initial|final) must be a "):
        LinearSchedule(*arguments)
