"""The targets of advantage learning are those of the paper, row by row."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT
from tests.support.by_hand import numpy
from tests.support.value_learning import ByHand, Floats, batch_of_windows, check_scalar_update, linear_learner


def gap(values: Floats, action: int) -> float:
    return float(values[action] - values.max())


def al(by_hand: ByHand, row: int, alpha: float = 0.9, double: bool = False) -> float:
    advantage = gap(by_hand.target_q(row), by_hand.action[row])
    return by_hand.bootstrapped(row, double) + alpha * advantage


def pal(by_hand: ByHand, row: int, double: bool = False) -> float:
    advantage = gap(by_hand.target_q(row), by_hand.action[row])
    if by_hand.discount[row] > 0:
        advantage = max(advantage, gap(by_hand.target_next_q(row), by_hand.action[row]))
    return by_hand.bootstrapped(row, double) + 0.9 * advantage


CASES: list[tuple[type[prl.DQN], dict[str, object], Callable[[ByHand, int], float]]] = [
    (prl.AL, {}, al),
    (prl.AL, {"alpha": 0.3}, lambda by_hand, row: al(by_hand, row, alpha=0.3)),
    (prl.AL, {"double": True}, lambda by_hand, row: al(by_hand, row, double=True)),
    (prl.PAL, {}, pal),
    (prl.DoublePAL, {}, lambda by_hand, row: pal(by_hand, row, double=True)),
]


@pytest.mark.parametrize(("cls", "hyper_parameters", "target"), CASES)
def test_an_update_equals_the_one_computed_by_hand(
    cls: type[prl.DQN], hyper_parameters: dict[str, object], target: Callable[[ByHand, int], float]
) -> None:
    algorithm, batch = linear_learner(cls, **hyper_parameters), batch_of_windows()
    by_hand = check_scalar_update(algorithm, batch, target)
    others = [each for other, _, each in CASES if other is not cls or each is not target]
    targets = [target(by_hand, row) for row in by_hand.rows]
    for other in others:
        assert not np.allclose(targets, [other(by_hand, row) for row in by_hand.rows])


def test_at_terminal_steps_only_the_present_advantage_counts() -> None:
    learners, batch = [linear_learner(cls) for cls in (prl.AL, prl.PAL)], batch_of_windows()
    by_hand, terminal = ByHand(learners[0], batch), batch[DISCOUNT] == 0
    now, larger = (each.advantage(each.read(batch)) for each in learners)
    assert torch.equal(larger[terminal], now[terminal])
    assert not torch.equal(larger, now)
    following = [gap(by_hand.target_next_q(row), by_hand.action[row]) for row in by_hand.rows]
    assert (numpy(now)[:, 0] < following)[terminal[:, 0]].any(), "some next advantages at terminal steps are larger"


def test_the_next_advantage_counts_without_a_discount() -> None:
    learner, batch = linear_learner(prl.PAL), batch_of_windows()
    expected = learner.advantage(learner.read(batch))
    batch[DISCOUNT] = torch.zeros_like(batch[DISCOUNT])
    assert torch.equal(learner.advantage(learner.read(batch)), expected)
