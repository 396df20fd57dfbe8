"""Rescaled values match the paper's formulas, computed in double precision."""

import math

import numpy as np
import pytest
import torch

from pytorchrl.agent.actors.outputs import RescaledValue, RescaledValues
from pytorchrl.agent.actors.outputs.expected_returns import rescaled, restored

MAGNITUDES = np.concatenate([[0.0], np.logspace(-30, 30, 241)])
RETURNS = np.concatenate([-MAGNITUDES[::-1], MAGNITUDES])
EPS = 1e-3


def h(x: float, eps: float) -> float:
    """The paper's formula, with expm1 and log1p, which avoid cancellation for small numbers."""
    root = math.expm1(0.5 * math.log1p(abs(x)))
    return math.copysign(root, x) + eps * x


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1, 1.0])
def test_rescaling_matches_the_paper_and_is_inverted_in_single_precision(eps: float) -> None:
    returns = torch.from_numpy(RETURNS).float()
    expected = np.array([h(x, eps) for x in returns.double().tolist()])
    on_scale = rescaled(returns, eps)
    np.testing.assert_allclose(on_scale.double().numpy(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(restored(on_scale, eps), returns, rtol=3e-6, atol=0)


def test_the_inverse_matches_the_papers_formula() -> None:
    values = np.linspace(-50, 50, 101)
    root = (np.sqrt(1 + 4 * EPS * (np.abs(values) + 1 + EPS)) - 1) / (2 * EPS)
    expected = np.sign(values) * (root**2 - 1)
    np.testing.assert_allclose(restored(torch.from_numpy(values), EPS).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_gradients_of_rescaling_and_its_inverse_are_finite_and_reciprocal() -> None:
    returns = torch.tensor([-1e6, -1.0, -1e-20, 0.0, 1e-20, 1.0, 1e6], requires_grad=True)
    values = rescaled(returns, EPS)
    (slope,) = torch.autograd.grad(values.sum(), returns)
    values = values.detach().requires_grad_()
    (inverse_slope,) = torch.autograd.grad(restored(values, EPS).sum(), values)
    torch.testing.assert_close(slope * inverse_slope, torch.ones(7), rtol=1e-4, atol=1e-4)


def test_a_backup_adds_and_discounts_unscaled_returns() -> None:
    value, reward, discount = 7.0, -3.0, 0.9
    backed_up = RescaledValue(torch.tensor([[value]]), EPS).backup(torch.tensor([[reward]]), torch.tensor([[discount]]))
    root = (math.sqrt(1 + 4 * EPS * (value + 1 + EPS)) - 1) / (2 * EPS)
    expected = reward + discount * (root**2 - 1)
    assert backed_up.mean.item() == pytest.approx(expected, rel=1e-5)
    found = RescaledValue(torch.tensor([[2.0]]), EPS, huber_threshold=None).loss(backed_up)
    assert found.item() == pytest.approx((2.0 - h(expected, EPS)) ** 2 / 2, rel=1e-5)


def test_expected_returns_of_actions_agree_and_keep_their_order() -> None:
    values = RescaledValues(torch.tensor([[1.0, -4.0, 3.0]]), EPS)
    assert values.greedy().tolist() == [[2]]
    torch.testing.assert_close(values.values[0, 1], values.of(torch.tensor([[1]])).mean[0, 0])
    assert values.best().mean.item() == values.values.max().item()
