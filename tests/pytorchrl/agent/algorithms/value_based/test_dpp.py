"""The targets of dynamic policy programming are those of the paper, row by row."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW
from tests.support.value_learning import ByHand, Floats, batch_of_windows, check_scalar_update, linear_learner


def average(preferences: Floats, operator: str, eta: float) -> float:
    if operator == "maximum":
        return float(max(preferences))
    shares = [np.exp(eta * preference) for preference in preferences]
    if operator == "logsumexp":
        return float(np.log(sum(shares)) / eta)
    return float(sum(share * preference for share, preference in zip(shares, preferences, strict=True)) / sum(shares))


@pytest.mark.parametrize("operator", ["softmax", "logsumexp", "maximum"])
@pytest.mark.parametrize("eta", [0.5, 1.0, 3.0])
def test_an_update_equals_the_one_computed_by_hand(operator: str, eta: float) -> None:
    algorithm, batch = linear_learner(prl.DPP, operator=operator, eta=eta), batch_of_windows()

    def target(by_hand: ByHand, row: int) -> float:
        now, following = by_hand.target_q(row), by_hand.target_next_q(row)
        bootstrapped = by_hand.reward[row] + by_hand.discount[row] * average(following, operator, eta)
        return float(now[by_hand.action[row]] + bootstrapped - average(now, operator, eta))

    check_scalar_update(algorithm, batch, target)


@pytest.mark.parametrize("operator", ["softmax", "logsumexp"])
def test_large_preferences_leave_targets_finite(operator: Any) -> None:
    algorithm = linear_learner(prl.DPP, scale=1e4, operator=operator, eta=10.0)
    batch = batch_of_windows()
    rows = Rows(batch, algorithm.codec)
    target = algorithm.target_value(rows).mean
    greedy = linear_learner(prl.DPP, scale=1e4, operator="maximum").target_value(rows).mean
    torch.testing.assert_close(target, greedy, rtol=1e-4, atol=1.0)


def test_preferences_of_worse_actions_fall_further_below_the_best_with_training() -> None:
    algorithm = linear_learner(prl.DPP, operator="maximum", lr=0.05, target_update_interval=1)
    batch = batch_of_windows(size=60)
    # One state, whose actions pay 0, 1 and 2, and end the episode.
    for key in (OBS, OBS2, DISCOUNT):
        batch[key].zero_()
    batch[REW] = batch[ACT].float()
    spreads = []
    for _ in range(3):
        for _ in range(100):
            algorithm.update(batch)
        values = algorithm.q(algorithm.actor.view(batch[OBS][:1])).values[0]
        spreads.append((values.max() - values.min()).item())
    assert values[2] == values.max()
    assert values[2].item() == pytest.approx(2.0, abs=0.05), "the best preference is the return"
    assert spreads[0] + 1 < spreads[1] < spreads[2] - 1
