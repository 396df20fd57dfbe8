"""Statistics of few runs, compared with computations by hand and rliable."""

import math
from typing import Any

import numpy as np
import pytest

from pytorchrl.logging.bands import band_of
from pytorchrl.logging.bootstrap import band, estimate, interquartile_mean, value_of
from pytorchrl.logging.curves import Curve
from tests.support.rliable_module import rliable_module


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([9.0, 1.0, 2.0], 4.0),  # A quarter of three is less than one value.
        ([100.0, 2.0, 4.0, -50.0], 3.0),
        ([9, 1, 2, 3, 4, 5, 6, 100], 4.5),  # Leaves out 1, 2 and 9, 100.
        ([1, 2, 3, 4, 5, 6, 7, 8, 90], 5.0),  # A quarter of nine is rounded down to two.
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(values: list[float], mean: float) -> None:
    assert interquartile_mean(np.array(values)) == mean
    columns = np.array([values, values]).T
    assert interquartile_mean(columns, axis=0).tolist() == [mean, mean]


def test_the_interval_of_two_runs_spans_from_one_to_the_other() -> None:
    # A quarter of all resamples of two is (1, 1), and a quarter is (3, 3).
    two = estimate([np.array([1.0, 3.0])])
    assert (two.value, two.low, two.high) == (2.0, 1.0, 3.0)
    assert two.has_interval


def test_equal_runs_have_an_interval_of_width_0_and_a_single_run_has_none() -> None:
    equal = estimate([np.full(5, 4.0)])
    assert (equal.value, equal.low, equal.high) == (4.0, 4.0, 4.0)
    alone = estimate([np.array([4.0])])
    assert alone.value == 4.0
    assert math.isnan(alone.low)
    assert not alone.has_interval
    assert not estimate([np.arange(5.0), np.array([1.0])]).has_interval


def test_runs_are_resampled_within_their_environment() -> None:
    # Resampling from all runs would mix environments of different returns, and the mean would vary.
    strata = [np.full(3, 0.0), np.full(3, 100.0)]
    drawn = estimate(strata, "mean")
    assert (drawn.value, drawn.low, drawn.high) == (50.0, 50.0, 50.0)


@pytest.mark.parametrize("statistic", ["iqm", "median", "mean"])
def test_environments_count_alike_however_many_runs_they_have(statistic: Any) -> None:
    solved_by_many = estimate([np.full(20, 1.0), np.full(4, 0.0)], statistic)
    assert (solved_by_many.value, solved_by_many.low, solved_by_many.high) == (0.5, 0.5, 0.5)
    # Six runs of weights 1, 1, 1, 1, 2, 2: a sixth of 8 is left out at either end, 1 and a third of the next value.
    by_hand = {"iqm": (2 / 3 * 2 + 2 * 3 + 2 * 4 + 2 / 3 * 5) / (16 / 3), "median": 3.5, "mean": 28 / 8}
    strata = [np.array([1.0, 2.0, 5.0, 6.0]), np.array([4.0, 3.0])]
    assert value_of(strata, statistic) == pytest.approx(by_hand[statistic], rel=1e-12)


def test_environments_of_equally_many_runs_have_the_statistics_of_all_runs() -> None:
    strata = list(np.random.default_rng(2).normal(size=(3, 5)))
    together = np.concatenate(strata)
    assert value_of(strata, "iqm") == interquartile_mean(together)
    assert value_of(strata, "median") == np.median(together)
    assert value_of(strata, "mean") == np.mean(together)


def test_intervals_are_reproducible_and_do_not_use_the_global_generator() -> None:
    scores = [np.random.default_rng(3).normal(size=7)]
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert estimate(scores) == estimate(scores)
    assert np.random.random() == expected  # noqa: NPY002


# rliable takes seconds to import.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_intervals_equal_those_of_rliable_within_sampling_error(statistic: Any) -> None:
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


def test_a_band_is_the_bootstrap_interval_at_each_point() -> None:
    values = np.array([[1.0, 10.0, 5.0], [3.0, 30.0, 5.0]])
    line, low, high = band(values)
    assert line.tolist() == [2.0, 20.0, 5.0]
    assert low.tolist() == [1.0, 10.0, 5.0]
    assert high.tolist() == [3.0, 30.0, 5.0]
    assert np.isnan(band(values[:1])[1]).all()


def test_a_band_of_many_points_equals_the_bands_of_single_points() -> None:
    values = np.random.default_rng(0).normal(size=(30, 500))
    parts = [band(values[:, point : point + 1], "median") for point in (0, 250, 499)]
    for whole, *alone in zip(band(values, "median"), *parts, strict=True):
        np.testing.assert_allclose(whole[[0, 250, 499]], np.concatenate(alone), rtol=1e-12)


def curve(*points: tuple[float, float]) -> Curve:
    x, values = zip(*points, strict=True)
    return Curve(np.array(x, np.float64), np.array(values, np.float64))


def test_curves_are_aggregated_over_the_range_in_which_all_were_measured() -> None:
    # The first was not measured beyond 40, the second not before 10; at 20 and 30, one of them is interpolated.
    joined = band_of([curve((0, 0), (20, 20), (40, 40)), curve((10, 110), (30, 130), (50, 150))])
    assert joined is not None
    assert joined.x.tolist() == [10, 20, 30, 40]
    assert joined.values.tolist() == [60, 70, 80, 90]
    assert joined.low.tolist() == [10, 20, 30, 40]
    assert joined.high.tolist() == [110, 120, 130, 140]


def test_curves_without_a_common_range_are_not_aggregated() -> None:
    assert band_of([curve((0, 1), (10, 1)), curve((11, 1), (20, 1))]) is None
    touching = band_of([curve((0, 1), (10, 2)), curve((10, 4), (20, 1))])
    assert touching is not None
    assert (touching.x.tolist(), touching.values.tolist()) == ([10], [3])


def test_one_curve_keeps_its_points_and_several_are_reduced_to_200_points() -> None:
    random = np.random.default_rng(0)
    curves = [Curve(np.sort(random.uniform(0, 100, 900)), np.full(900, 4.0)) for _ in range(3)]
    alone, joined = band_of(curves[:1]), band_of(curves)
    assert alone is not None
    assert joined is not None
    assert alone.x.tolist() == curves[0].x.tolist()
    assert len(joined) == 200
    np.testing.assert_allclose(joined.values, 4.0, rtol=1e-12)
