"""XQL fits state values to soft maxima of action values in the data, for small and large rewards."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, MASK, OBS, REW, WEIGHTS, WINDOW
from tests.support.comparison import assert_equal
from tests.support.soft_critics import made, n_step_batch


def one_state(rewards: Any) -> dict[str, torch.Tensor]:
    """Five actions of one state, which ends with them."""
    batch = n_step_batch()
    batch[OBS] = batch[OBS][:1].expand(5, -1).clone()
    batch |= {REW: torch.tensor(rewards)[:, None], DISCOUNT: torch.zeros(5, 1), WEIGHTS: torch.ones(5, 1)}
    return batch


def value_gradients(algorithm: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    gradients, _ = algorithm.compute_gradients(batch)
    return {name: gradient for name, gradient in gradients.items() if name.startswith("value.")}


@pytest.mark.parametrize("rewards", [1e4, -1e4, 0.0])
def test_without_a_bound_values_move_towards_rewards_of_any_size(rewards: float) -> None:
    algorithm, batch = made(prl.XQL, max_clip=None, polyak=0.0, lr_q=1e3), one_state([rewards] * 5)
    for critic in [*algorithm.critics, *algorithm.target_critics]:
        with torch.no_grad():
            critic.head.layer.weight.zero_()
            critic.head.layer.bias.fill_(rewards)
    before = algorithm.value(algorithm.read(batch).now)[0].item()
    gradients = value_gradients(algorithm, batch)
    bias = gradients["value.head.layer.bias"].item()
    assert np.isfinite(bias)
    assert np.sign(-bias) == np.sign(rewards - before)


def test_errors_beyond_the_bound_have_no_gradient_and_do_not_weaken_those_of_others() -> None:
    algorithm, batch = made(prl.XQL, value_temperature=1.0, max_clip=2.0), n_step_batch()
    rows = algorithm.read(batch)
    advantage = torch.tensor([[1e6], [1.0], [0.5], [-1.0], [-3.0]], requires_grad=True)
    algorithm.value_loss(advantage, rows).sum().backward()
    error = np.array([[2.0], [1.0], [0.5], [-1.0], [-3.0]])
    expected = (np.exp(error) - 1) / np.exp(2.0)
    expected[0] = 0
    np.testing.assert_allclose(advantage.grad, expected, rtol=1e-5)


def test_where_all_errors_are_far_below_0_gradients_are_bounded() -> None:
    algorithm, batch = made(prl.XQL, value_temperature=1.0), n_step_batch()
    advantage = torch.full((5, 1), -1e6, requires_grad=True)
    loss = algorithm.value_loss(advantage, algorithm.read(batch))
    assert loss.isfinite().all()
    loss.sum().backward()
    np.testing.assert_allclose(advantage.grad, np.full((5, 1), -np.e), rtol=1e-5)


def test_padding_does_not_affect_the_values_gradients() -> None:
    algorithm = made(prl.XQL)
    batch = {key: value.view(1, 5, *value.shape[1:]) for key, value in n_step_batch().items() if key != WEIGHTS}
    batch |= {WEIGHTS: torch.ones(5, 1), WINDOW: torch.ones(1, 5, 1), MASK: torch.ones(1, 5, 1)}
    batch[MASK][0, 3:] = 0
    found = []
    for factor in (1.0, 30.0, -30.0):
        changed = {**batch, OBS: batch[OBS].clone()}
        changed[OBS][0, 3:] *= factor
        found.append(value_gradients(algorithm, changed))
    assert found[0]["value.head.layer.bias"].abs() > 0
    assert_equal(found[1:], [found[0], found[0]])
