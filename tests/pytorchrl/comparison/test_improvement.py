"""Probabilities of improvement and the seeds that they need, compared with computations by hand and rliable."""

import math

import numpy as np
import pytest

from pytorchrl.comparison import Improvement, seeds_needed
from pytorchrl.comparison.improvement import improvement
from pytorchrl.logging.bootstrap import Estimate
from tests.support.rliable_module import rliable_module


def scores(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


@pytest.mark.parametrize(
    ("ones", "others", "probability"),
    [
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], 1.0),
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 0.0),
        ([2.0, 4.0], [1.0, 3.0], 0.75),  # Of four pairs, only (2, 3) is lost.
        ([2.0, 2.0], [1.0, 2.0], 0.75),  # Two pairs are won, two are equal.
        ([5.0, 5.0], [5.0, 5.0, 5.0], 0.5),
    ],
)
def test_the_probability_is_the_share_of_pairs_that_are_won(
    ones: list[float], others: list[float], probability: float
) -> None:
    better = improvement("a", [scores(*ones)], "b", [scores(*others)])
    assert better.probability.value == probability
    assert better.seeds == min(len(ones), len(others))


def test_environments_have_equal_weight_regardless_of_their_number_of_runs() -> None:
    won, lost = scores(*range(10, 30)), scores(0.0, 0.0)
    better = improvement("a", [won, lost], "b", [scores(1, 2), scores(1, 2)])
    assert better.probability.value == 0.5
    assert better.conclusion == "open: no difference"


def test_single_runs_have_no_interval_and_no_conclusion() -> None:
    better = improvement("a", [scores(3.0)], "b", [scores(1.0, 2.0)])
    assert not better.probability.has_interval
    assert not better.is_conclusive


@pytest.mark.parametrize(
    ("probability", "environments", "seeds"),
    [
        # (1.96 + 0.84)^2 / 6 = 1.308, divided by the squared distance from a half.
        (1.0, 1, 6),
        (0.0, 1, 6),
        (0.75, 1, 21),
        (0.6, 1, 131),
        (0.75, 5, 5),
        (1.0, 57, 2),
        (0.5, 1, None),
    ],
)
def test_the_number_of_needed_seeds_follows_noethers_formula(
    probability: float, environments: int, seeds: int | None
) -> None:
    assert seeds_needed(probability, environments) == seeds


@pytest.mark.long
def test_the_needed_seeds_detect_a_difference_with_a_power_of_80_percent() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    random = np.random.default_rng(0)
    # If the means of two normal distributions of variance 1 differ by this, a draw of one is larger in 0.75 of cases.
    shift = math.sqrt(2) * 0.6745
    seeds = seeds_needed(0.75)
    assert seeds is not None
    ones, others = random.normal(shift, size=(400, seeds)), random.normal(size=(400, seeds))
    found = stats.mannwhitneyu(ones, others, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(
    ("probability", "low", "high", "seeds", "needed", "conclusion"),
    [
        (1.0, 1.0, 1.0, 6, 6, "better"),
        (0.0, 0.0, 0.0, 6, 6, "worse"),
        # Three seeds of each, all larger: not significant in a test at the 5% level.
        (1.0, 1.0, 1.0, 3, 6, "open: 3 more seeds"),
        (1.0, 1.0, 1.0, 5, 6, "open: 1 more seed"),
        (0.75, 0.4, 1.0, 30, 21, "open: more seeds"),
        (0.75, 0.4, 1.0, 21, 21, "open: more seeds"),
        (0.5, 0.2, 0.8, 30, None, "open: no difference"),
        (1.0, math.nan, math.nan, 1, 6, "open: 5 more seeds"),
    ],
)
def test_a_conclusion_needs_enough_seeds_and_an_interval_that_excludes_one_half(
    probability: float, low: float, high: float, seeds: int, needed: int | None, conclusion: str
) -> None:
    better = Improvement("a", "b", Estimate(probability, low, high), seeds, needed)
    assert better.conclusion == conclusion
    assert better.is_conclusive == (conclusion in ("better", "worse"))


# rliable takes seconds to import.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
def test_probability_and_interval_equal_those_of_rliable() -> None:
    library = rliable_module("library")
    metrics = rliable_module("metrics")
    random = np.random.default_rng(3)
    ones, others = random.normal(0.4, 1.0, size=(6, 2)), random.normal(0.0, 1.0, size=(8, 2))
    values, intervals = library.get_interval_estimates(
        {"pair": [ones, others]},
        lambda one, other: np.array([metrics.probability_of_improvement(one, other)]),
        reps=600,
        random_state=np.random.RandomState(0),
    )
    ours = improvement("a", list(ones.T), "b", list(others.T)).probability
    assert ours.value == pytest.approx(values["pair"][0], rel=1e-12)
    assert [ours.low, ours.high] == pytest.approx(intervals["pair"].ravel().tolist(), abs=0.05)


@pytest.mark.parametrize("probability", [1.5, -3, math.nan])
def test_seeds_are_not_computed_for_what_is_no_probability(probability: float) -> None:
    with pytest.raises(ValueError, match=f"probability must be between 0 and 1, got {probability:g}"):
        seeds_needed(probability)
    with pytest.raises(ValueError, match="environments must be at least 1, got 0"):
        seeds_needed(0.7, environments=0)
