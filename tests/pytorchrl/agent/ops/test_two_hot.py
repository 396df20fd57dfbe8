"""Two-hot codes have the coded number as their mean, and symmetric logarithms are inverse to each other."""

import math

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.ops.two_hot import symexp, symlog, two_hot, two_hot_mean

EVEN = torch.arange(-50, 51) / 5
_ABOVE = symexp(torch.linspace(0, 20, 128))
SPREAD = torch.cat([-_ABOVE.flip(0), _ABOVE[1:]])


def test_symlog_is_the_logarithm_of_one_plus_the_magnitude_with_the_sign() -> None:
    x = torch.tensor([-1000.0, -1.0, 0.0, 1.0, 1000.0])
    expected = [-math.log(1001), -math.log(2), 0.0, math.log(2), math.log(1001)]
    torch.testing.assert_close(symlog(x), torch.tensor(expected))


def test_symexp_inverts_symlog_of_small_and_large_numbers() -> None:
    x = torch.tensor([-1e6, -3.0, -1e-6, 0.0, 1e-6, 3.0, 1e6])
    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-5, atol=0.0)


def test_a_number_between_two_bins_weighs_each_by_the_distance_to_the_other() -> None:
    bins = torch.tensor([-1.0, 0.0, 4.0])
    code = two_hot(torch.tensor([3.0, -0.25, 0.0, -1.0, 4.0]), bins)
    expected = [[0.0, 0.25, 0.75], [0.25, 0.75, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert code.tolist() == expected


@pytest.mark.parametrize("bins", [EVEN, SPREAD], ids=["even", "spread"])
def test_the_mean_of_a_code_is_the_number(bins: Tensor) -> None:
    largest = float(bins[-1])
    x = torch.cat([torch.linspace(-9.9, 9.9, 57), torch.tensor([-largest, largest])])
    code = two_hot(x, bins)
    assert code.shape == (59, len(bins))
    assert (code >= 0).all()
    torch.testing.assert_close(code.sum(1), torch.ones(59))
    torch.testing.assert_close((code * bins).sum(1), x, rtol=1e-5, atol=1e-5)
    # Logarithms of probabilities are logits.
    torch.testing.assert_close(two_hot_mean(code.log(), bins), x, rtol=1e-5, atol=1e-5)


def test_numbers_beyond_the_bins_have_the_code_of_the_outermost() -> None:
    code = two_hot(torch.tensor([-11.0, 1e9]), EVEN)
    assert code.argmax(1).tolist() == [0, 100]
    assert code.amax(1).tolist() == [1.0, 1.0]


def test_equal_logits_predict_exactly_zero() -> None:
    assert (two_hot_mean(torch.zeros(3, 255), SPREAD) == 0).all()
    assert (two_hot_mean(torch.zeros(3, 101), EVEN) == 0).all()


def test_further_axes_are_kept() -> None:
    x = torch.linspace(-3, 3, 24).view(4, 6)
    code = two_hot(x.T, EVEN)
    assert torch.equal(code, two_hot(x.T.reshape(-1), EVEN).view(6, 4, 101))
    logits = torch.randn(6, 4, 101, generator=torch.Generator().manual_seed(0))
    assert torch.equal(two_hot_mean(logits, EVEN), two_hot_mean(logits.flatten(0, 1), EVEN).view(6, 4))


def test_a_number_that_is_no_number_has_such_a_code() -> None:
    assert two_hot(torch.tensor([math.nan]), EVEN).isnan().any()


def test_gradients_of_the_mean_are_those_of_the_weighted_sum() -> None:
    logits = torch.randn(5, 101, generator=torch.Generator().manual_seed(1)).double().requires_grad_()
    bins = EVEN.double()
    (gradient,) = torch.autograd.grad(two_hot_mean(logits, bins).sum(), logits)
    (expected,) = torch.autograd.grad((logits.softmax(1) * bins).sum(), logits)
    torch.testing.assert_close(gradient, expected)
