"""Importance-weighted estimates of a policy's value equal those computed by hand, and find a known value."""

import numpy as np
import pytest

from pytorchrl.experiments.policies.importance_sampling import (
    WeightedEpisode,
    effective_sample_size,
    importance_estimates,
)
from pytorchrl.experiments.policies.logged_probabilities import stored_probabilities
from storages import Episode
from storages.errors import DatasetError
from storages.transition import ACT, ACTPROBS, LOGP, REW


def episode(ratios: list[float], rewards: list[float], value_after: float = 0.0) -> WeightedEpisode:
    values, action_values = ([number] * len(ratios) for number in (3.0, 2.0))
    return WeightedEpisode(*map(np.array, (ratios, rewards, values, action_values)), value_after)


TWO = [episode([2.0, 0.5], [1.0, 4.0]), episode([1.0], [3.0])]


def test_estimates_of_two_episodes_are_those_computed_by_hand() -> None:
    found = importance_estimates(TWO, 0.5, np.random.default_rng(0))
    # The weights are (2, 1) and (1); discounted rewards are (1, 2) and (3).
    assert found.ordinary.value == pytest.approx((2 * 1 + 1 * 2 + 1 * 3) / 2)
    # The second episode keeps its weight after its end, when it is paid nothing.
    assert found.weighted.value == pytest.approx((2 * 1 + 1 * 3) / (2 + 1) + (1 * 2 + 1 * 0) / (1 + 1))
    last = 3 + 0.5 * (4 - 2)
    first = 3 + 2 * (1 + 0.5 * last - 2)
    assert found.doubly_robust.value == pytest.approx((first + 3 + 1 * (3 - 2)) / 2)
    assert found.effective_episodes == pytest.approx(2.0)


def test_an_episode_that_did_not_terminate_goes_on_with_the_value_after_it() -> None:
    cut = [episode([2.0, 0.5], [1.0, 4.0], value_after=8.0), episode([1.0], [3.0])]
    plain, longer = (importance_estimates(each, 0.5, np.random.default_rng(0)) for each in (TWO, cut))
    assert longer.ordinary.value - plain.ordinary.value == pytest.approx(1 * 0.25 * 8 / 2)
    assert longer.weighted.value - plain.weighted.value == pytest.approx(1 * 0.25 * 8 / 2)
    assert longer.doubly_robust.value - plain.doubly_robust.value == pytest.approx(2 * 0.5 * 0.5 * 0.5 * 8 / 2)


@pytest.mark.parametrize(("weights", "size"), [([1, 1, 1, 1], 4), ([0, 0, 5], 1), ([1, 3], 1.6), ([0, 0], 0)])
def test_equal_weights_are_as_many_episodes_and_one_large_weight_is_one(weights: list[int], size: float) -> None:
    assert effective_sample_size(np.array(weights, float)) == pytest.approx(size)


def test_intervals_contain_the_known_value_of_a_policy_that_differs_from_the_data() -> None:
    # Two steps, paid 1 for action 1. The data take it with probability 0.4, the policy always: its value is 1 + 0.9.
    random, episodes = np.random.default_rng(3), []
    for _ in range(800):
        taken = (random.random(2) < 0.4).astype(float)
        # Wrong values, which the weights correct.
        paid = taken + random.normal(0, 0.5, 2)
        episodes.append(WeightedEpisode(taken / 0.4, paid, np.full(2, 0.3), taken * 0.3, 0.0))
    found = importance_estimates(episodes, 0.9, random)
    for estimate in (found.ordinary, found.weighted, found.doubly_robust):
        assert estimate.low < 1.9 < estimate.high
        assert estimate.high - estimate.low < 0.8
    assert found.effective_episodes == pytest.approx(800 * 0.4**2, rel=0.2)


def logged(**fields: np.ndarray) -> Episode:
    plain = {ACT: np.array([[0], [2]]), REW: np.ones((2, 1))}
    return Episode(np.zeros((3, 1), np.float32), {**plain, **fields}, True, False)


@pytest.mark.parametrize(
    "fields",
    [
        {LOGP: np.log([[0.5], [0.25]])},
        {ACTPROBS: np.array([[0.5, 0.5, 0.0], [0.0, 0.75, 0.25]])},
        {ACTPROBS: np.array([[0.5], [0.25]])},
        {ACTPROBS: np.log([[0.5], [0.25]])},
        {ACTPROBS: np.log([[0.5, 0.4, 0.1], [0.05, 0.7, 0.25]])},
    ],
    ids=["log-probability", "of all actions", "of the action", "its logarithm", "logarithms of all"],
)
def test_stored_probabilities_are_those_of_the_actions_taken(fields: dict[str, np.ndarray]) -> None:
    found = stored_probabilities(logged(**fields))
    assert found is not None
    np.testing.assert_allclose(found, [0.5, 0.25])
    assert stored_probabilities(logged()) is None


@pytest.mark.parametrize("wrong", [0.0, 1.5])
def test_a_stored_probability_that_cannot_be_is_refused_with_its_step(wrong: float) -> None:
    with pytest.raises(
        DatasetError, match=rf"ActionProbs gives the action in step 1 of episode 0 the probability {wrong:g}; "
    ):
        stored_probabilities(logged(**{ACTPROBS: np.array([[0.5], [wrong]])}))
