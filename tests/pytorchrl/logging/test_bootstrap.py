"""Statistics of few runs, by numbers computed by hand and beside rliable's."""

import math
from typing import Any

import numpy as np
import pytest

from pytorchrl.logging.bands import band_of
from pytorchrl.logging.bootstrap import band, estimate, interquartile_mean
from pytorchrl.logging.curves import Curve
from tests.support.rliable_module import rliable_module


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([9.0, 1.0, 2.0], 4.0),  # A quarter of three is less than one value.
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        ([9, 1, 2, 3, 4, 5, 6, 100], 4.5),  # Without 1, 2 and 9, 100.
        ([1, 2, 3, 4, 5, 6, 7, 8, 90], 5.0),  # A quarter of nine is cut down to two.
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end(values: list[float], mean: float) -> None:
    assert interquartile_mean(np.array(values)) == mean
    columns = np.array([values, values]).T
    assert interquartile_mean(columns, axis=0).tolist() == [mean, mean]


def test_an_interval_of_two_runs_reaches_from_one_to_the_other() -> None:
    # Of all draws of two, a quarter is (1, 1) and a quarter is (3, 3).
    two = estimate([np.array([1.0, 3.0])])
    assert (two.value, two.low, two.high) == (2.0, 1.0, 3.0)
    assert two.has_interval


def test_equal_runs_leave_no_doubt_and_a_single_run_says_nothing_of_it() -> None:
    equal = estimate([np.full(5, 4.0)])
    assert (equal.value, equal.low, equal.high) == (4.0, 4.0, 4.0)
    alone = estimate([np.array([4.0])])
    assert alone.value == 4.0
    assert math.isnan(alone.low)
    assert not alone.has_interval
    assert not estimate([np.arange(5.0), np.array([1.0])]).has_interval


def test_runs_are_drawn_within_their_environment() -> None:
    # Environments far apart would be mixed by draws from all runs, and the mean would vary.
    strata = [np.full(3, 0.0), np.full(3, 100.0)]
    drawn = estimate(strata, "mean")
    assert (drawn.value, drawn.low, drawn.high) == (50.0, 50.0, 50.0)


def test_an_interval_is_the_same_each_time_and_its_global_generator_is_left_alone() -> None:
    scores = [np.random.default_rng(3).normal(size=7)]
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert estimate(scores) == estimate(scores)
    assert np.random.random() == expected  # noqa: NPY002


# The package takes seconds to import.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_intervals_are_those_of_rliable(statistic: Any) -> None:
    library = rliable_module("library")
    metrics = rliable_module("metrics")
    function = {"iqm": metrics.aggregate_iqm, "mean": metrics.aggregate_mean}[statistic]
    scores = np.random.default_rng(7).gamma(2.0, 30.0, size=(8, 3))
    values, intervals = library.get_interval_estimates(
        {"a": scores}, lambda some: np.array([function(some)]), reps=4_000, random_state=np.random.RandomState(0)
    )
    ours = estimate(list(scores.T), statistic)
    assert ours.value == pytest.approx(values["a"][0], rel=1e-12)
    # Both draw at random; the bounds of so many draws vary by about a hundredth of the interval.
    width = ours.high - ours.low
    assert [ours.low, ours.high] == pytest.approx(intervals["a"].ravel().tolist(), abs=0.04 * width)


def test_a_band_is_the_interval_at_each_point_with_whole_runs_drawn() -> None:
    values = np.array([[1.0, 10.0, 5.0], [3.0, 30.0, 5.0]])
    line, low, high = band(values)
    assert line.tolist() == [2.0, 20.0, 5.0]
    assert low.tolist() == [1.0, 10.0, 5.0]
    assert high.tolist() == [3.0, 30.0, 5.0]
    assert np.isnan(band(values[:1])[1]).all()


def test_a_band_of_many_points_is_that_of_each_alone() -> None:
    values = np.random.default_rng(0).normal(size=(30, 500))
    parts = [band(values[:, point : point + 1], "median") for point in (0, 250, 499)]
    for whole, *alone in zip(band(values, "median"), *parts, strict=True):
        np.testing.assert_allclose(whole[[0, 250, 499]], np.concatenate(alone), rtol=1e-12)


def curve(*points: tuple[float, float]) -> Curve:
    x, values = zip(*points, strict=True)
    return Curve(np.array(x, np.float64), np.array(values, np.float64))


def test_curves_are_joined_where_all_were_measured() -> None:
    # Beyond 40 the first was not measured, before 10 the second; at 20 and 30 one of them is between two points.
    joined = band_of([curve((0, 0), (20, 20), (40, 40)), curve((10, 110), (30, 130), (50, 150))])
    assert joined is not None
    assert joined.x.tolist() == [10, 20, 30, 40]
    assert joined.values.tolist() == [60, 70, 80, 90]
    assert joined.low.tolist() == [10, 20, 30, 40]
    assert joined.high.tolist() == [110, 120, 130, 140]


def test_curves_measured_at_no_common_steps_are_not_joined() -> None:
    assert band_of([curve((0, 1), (10, 1)), curve((11, 1), (20, 1))]) is None
    touching = band_of([curve((0, 1), (10, 2)), curve((10, 4), (20, 1))])
    assert touching is not None
    assert (touching.x.tolist(), touching.values.tolist()) == ([10], [3])


def test_a_lone_curve_stays_as_it_is_and_many_points_of_several_become_fewer() -> None:
    random = np.random.default_rng(0)
    curves = [Curve(np.sort(random.uniform(0, 100, 900)), np.full(900, 4.0)) for _ in range(3)]
    alone, joined = band_of(curves[:1]), band_of(curves)
    assert alone is not None
    assert joined is not None
    assert alone.x.tolist() == curves[0].x.tolist()
    assert len(joined) == 200
    np.testing.assert_allclose(joined.values, 4.0, rtol=1e-12)
