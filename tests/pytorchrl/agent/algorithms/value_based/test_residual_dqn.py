"""ResidualDQN's gradient passes through the next values too, and it has no target network."""

from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from tests.support.by_hand import numeric_gradient
from tests.support.value_learning import ByHand, batch_of_windows, check_gradients, huber, linear_learner


def bellman_error(now: ByHand, following: ByHand, row: int) -> float:
    target = following.reward[row] + following.discount[row] * following.next_q(row).max()
    return float(now.q(row)[now.action[row]] - target)


@pytest.mark.parametrize("grad_scale", [0.0, 0.3, 1.0])
def test_the_gradient_is_that_of_present_and_next_values(grad_scale: float) -> None:
    algorithm, batch = linear_learner(prl.ResidualDQN, grad_scale=grad_scale), batch_of_windows()
    # Two copies of the layer, so that present and next values can be changed separately.
    now, following = ByHand(algorithm, batch), ByHand(algorithm, batch)

    def loss() -> float:
        return float(np.mean([now.weight[row] * huber(bellman_error(now, following, row)) for row in now.rows]))

    of_both = [
        numeric_gradient(loss, part) + grad_scale * numeric_gradient(loss, same)
        for part, same in zip(now.online, following.online, strict=True)
    ]
    errors = np.array([abs(bellman_error(now, following, row)) for row in now.rows])
    assert any(np.abs(numeric_gradient(loss, part)).max() > 0.05 for part in following.online)
    check_gradients(algorithm, batch, loss(), errors, of_both)


def test_there_is_no_target_network() -> None:
    algorithm = linear_learner(prl.ResidualDQN)
    assert algorithm.training.targets == {}
    assert algorithm.q_target is algorithm.q
    algorithm.update(batch_of_windows())
    assert algorithm.state_dict()["training"]["targets"] == {}


@pytest.mark.parametrize("name", ["double", "polyak", "target_update_interval"])
def test_hyper_parameters_of_a_target_network_are_refused(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=f"ResidualDQN: unknown hyper-parameter '{name}'"):
        prl.ResidualDQN.create_factory(**given)
