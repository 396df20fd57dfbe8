"""Schedules: numbers that depend only on the progress of a run."""

import math
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    CosineSchedule,
    ExponentialSchedule,
    FunctionSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    RepeatedSchedule,
    Schedule,
)
from storages.component.hyper_parameters import MisfitError, Within, conform
from storages.component.schedule import value_at
from tests.support.profiles import examples

STEPS = (0, 25, 50, 75, 100, 200)


def values(schedule: Schedule, target_steps: int = 100) -> list[float]:
    return [schedule.at(steps, target_steps) for steps in STEPS]


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


def test_an_exponential_schedule_changes_by_a_constant_factor() -> None:
    assert values(ExponentialSchedule(1.0, 1e-4)) == pytest.approx([1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-4])
    assert values(ExponentialSchedule(0.25, 4.0, fraction=0.5)) == pytest.approx([0.25, 1, 4, 4, 4, 4])


def test_the_distance_to_1_changes_by_a_constant_factor_below_one() -> None:
    schedule = ExponentialSchedule(0.97, 0.997, fraction=0.5, below_one=True)
    assert values(schedule) == pytest.approx([0.97, 1 - 0.03 * 0.1**0.5, 0.997, 0.997, 0.997, 0.997])
    assert schedule.extremes == (0.97, 0.997)
    for ends in ((0.9, 1.0), (1.5, 0.9)):
        with pytest.raises(ValueError, match="with below_one, initial and final must be less than 1, got"):
            ExponentialSchedule(*ends, below_one=True)


def test_a_repeated_schedule_begins_again_at_each_interval() -> None:
    schedule = RepeatedSchedule(ExponentialSchedule(16.0, 1.0, fraction=0.5), every=40, after=25)
    steps = (0, 20, 25, 30, 35, 45, 64, 65, 75, 105)
    assert [schedule.at(at, 1_000) for at in steps] == pytest.approx([16, 16, 16, 8, 4, 1, 1, 16, 4, 16])
    assert schedule.extremes == (16, 1)
    with pytest.raises(ValueError, match="RepeatedSchedule: every must be at least 1, got 0"):
        RepeatedSchedule(LinearSchedule(1.0, 0.0), every=0)


def test_a_cosine_schedule_is_half_a_period_of_a_cosine() -> None:
    half = math.sqrt(0.5) / 2
    assert values(CosineSchedule(1.0, 0.0)) == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half, 0, 0])
    assert values(CosineSchedule(-1.0, 3.0, fraction=0.5)) == pytest.approx([-1, 1, 3, 3, 3, 3])


def test_a_piecewise_schedule_is_linear_between_its_points() -> None:
    points = ((0.25, 1.0), (0.5, 0.0), (1.0, 4.0))
    expected = np.interp(np.array(STEPS) / 100, *np.transpose(points))
    assert values(PiecewiseSchedule(points)) == pytest.approx(expected.tolist())
    assert PiecewiseSchedule(points).extremes == (0.0, 4.0)


def test_a_piecewise_schedule_may_have_steps_as_positions() -> None:
    schedule = PiecewiseSchedule([(50, 1), (100, 0)], positions="steps")  # type: ignore[arg-type]
    assert values(schedule, target_steps=10_000) == [1, 1, 1, 0.5, 0, 0]
    assert values(PiecewiseSchedule(((30, 2.0),), positions="steps")) == [2.0] * len(STEPS)


def test_a_function_schedule_is_any_function_of_the_progress() -> None:
    schedule = FunctionSchedule(lambda progress: progress**2, 0, 1)
    assert values(schedule) == [0, 0.0625, 0.25, 0.5625, 1, 1]
    assert schedule.extremes == (0, 1)


def test_a_function_schedule_outside_its_range_raises_an_error_with_the_progress() -> None:
    schedule = FunctionSchedule(lambda progress: 2 * progress, 0, 1)
    assert schedule.at(50, 100) == 1
    with pytest.raises(ValueError, match=r"must lie in \[low, high\] = \[0, 1\], got 1.5 at a progress of 0.75; widen"):
        schedule.at(75, 100)
    with pytest.raises(ValueError, match="got nan"):
        FunctionSchedule(lambda _: math.nan, 0, 1).at(0, 1)


numbers = st.floats(-1e6, 1e6)
positive = st.floats(1e-300, 1e300)
fractions = st.floats(0.01, 1)
schedules = st.one_of(
    st.builds(ExponentialSchedule, positive, positive, fractions),
    st.builds(ExponentialSchedule, st.floats(1e-6, 0.999), st.floats(1e-6, 0.999), fractions, st.just(True)),
    st.builds(CosineSchedule, numbers, numbers, fractions),
    st.builds(
        PiecewiseSchedule,
        st.dictionaries(st.floats(0, 1), numbers, min_size=1, max_size=5).map(lambda d: tuple(sorted(d.items()))),
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(schedule=schedules, steps=st.integers(0, 2000), target_steps=st.integers(0, 1000))
def test_no_value_lies_outside_the_extremes(schedule: Schedule, steps: int, target_steps: int) -> None:
    low, high = min(schedule.extremes), max(schedule.extremes)
    assert low <= schedule.at(steps, target_steps) <= high


@pytest.mark.parametrize("cls", [LinearSchedule, CosineSchedule, ExponentialSchedule])
def test_a_schedule_does_not_begin_or_end_at_infinity(cls: Any) -> None:
    for ends in ((math.inf, 0.1), (0.1, math.inf)):
        with pytest.raises(ValueError, match=f"{cls.__name__}: (initial|final) must be finite, got inf"):
            cls(*ends)


@pytest.mark.parametrize(
    "schedule",
    [ExponentialSchedule(0.1, 0.1), CosineSchedule(0.1, 0.1), PiecewiseSchedule(((0.0, 0.1), (1.0, 0.1)))],
    ids=lambda schedule: type(schedule).__name__,
)
def test_a_schedule_between_equal_values_is_constant(schedule: Schedule) -> None:
    assert {schedule.at(steps, 1000) for steps in range(1001)} == {0.1}


@settings(max_examples=examples(100), deadline=None)
@given(schedule=schedules)
def test_a_schedule_can_be_recreated_from_its_config(schedule: Any) -> None:
    config = schedule.config
    again = type(schedule)(**config["hyper_parameters"])
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.config == config


def test_the_config_of_a_function_schedule_has_the_name_of_its_function() -> None:
    config = FunctionSchedule(math.sin, 0, 1).config
    assert config["hyper_parameters"] == {"function": {"callable": "sin"}, "low": 0, "high": 1}


def test_a_schedule_outside_a_hyper_parameters_range_is_refused() -> None:
    unit = Annotated[float | Schedule, Within(0, 1)]
    for schedule in (
        ExponentialSchedule(1.5, 0.1),
        CosineSchedule(0.1, -0.1),
        PiecewiseSchedule(((0.0, 0.5), (0.5, 1.5), (1.0, 0.5))),
        FunctionSchedule(abs, 0, 2),
    ):
        with pytest.raises(MisfitError, match=r"must lie in \[0, 1\]"):
            conform(schedule, unit)


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (LinearSchedule, (1.0, 0.0, 1.1), r"LinearSchedule: fraction must lie in \(0, 1\], got 1.1"),
        (LinearSchedule, (1.0, None), "LinearSchedule: final must be a float, got None"),
        (ExponentialSchedule, (1.0, 0.0), "ExponentialSchedule: final must be greater than 0, got 0.0"),
        (ExponentialSchedule, (-1.0, 1.0), "ExponentialSchedule: initial must be greater than 0, got -1.0"),
        (ExponentialSchedule, (1.0, 0.5, 0.0), r"ExponentialSchedule: fraction must lie in \(0, 1\], got 0.0"),
        (CosineSchedule, (1.0, 0.5, 1.5), r"CosineSchedule: fraction must lie in \(0, 1\], got 1.5"),
        (CosineSchedule, ("much", 0.5), "CosineSchedule: initial must be a float, got 'much'"),
        (PiecewiseSchedule, ((),), "PiecewiseSchedule: points must be pairs of a position and a value"),
        (PiecewiseSchedule, (((0.0, 1.0, 2.0),),), "PiecewiseSchedule: points must be pairs"),
        (PiecewiseSchedule, (((0.0, 1.0), (1.0, math.inf)),), r"the values of points must be finite, got \[1.0, inf\]"),
        (PiecewiseSchedule, (((0.0, 1.0), (1.0, math.nan)),), "points holds a value that .* must be a number, got nan"),
        (PiecewiseSchedule, (((0.5, 1.0), (0.5, 2.0)),), "PiecewiseSchedule: the positions of points must rise"),
        (PiecewiseSchedule, (((-0.5, 1.0), (0.5, 2.0)), "steps"), "the positions of points must be at least 0"),
        (PiecewiseSchedule, (((0, 1.0), (500, 2.0)),), r"must lie in \[0, 1\]; positions='steps' counts transitions"),
        (PiecewiseSchedule, (((0, 1.0),), "updates"), "PiecewiseSchedule: positions must be one of"),
        (FunctionSchedule, (1.0, 0, 1), "FunctionSchedule: function must be callable, got 1.0"),
        (FunctionSchedule, (abs, 1, 0), "FunctionSchedule: low must not be greater than high=0.0, got 1.0"),
    ],
)
def test_invalid_schedules_are_refused(cls: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(*arguments)
