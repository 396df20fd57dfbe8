"""The fast tanh matches torch within a few units in the last place, with its gradients."""

import math

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.ops import layers as fast_tanh
from pytorchrl.agent.ops.layers import tanh_


def tanh(features: Tensor) -> Tensor:
    return tanh_(features.clone())


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no size to torch."""
    monkeypatch.setattr(fast_tanh, "_LEAST_NUMBERS", 0)
    monkeypatch.setattr(fast_tanh, "_LEAST_NUMBERS_WITH_GRADIENT", 0)


def test_tanh_is_accurate_for_all_magnitudes() -> None:
    numbers = torch.linspace(-20, 20, 400_001)
    numbers = torch.cat([numbers, numbers * 1e-3, numbers * 1e-10, numbers * 1e30])
    before = numbers.clone()
    result = tanh(numbers)
    assert torch.equal(numbers, before)
    exact = numbers.double().tanh()
    torch.testing.assert_close(result.double(), exact, rtol=5e-7, atol=0)
    assert result.abs().max() == 1


def test_tanh_of_nan_infinity_and_signed_zero() -> None:
    result = tanh(torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0]))
    assert result[0].isnan()
    assert result[1:].tolist() == [1, -1, 0, 0]
    assert result[4].signbit()


def test_first_and_second_gradients_match_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, weights = torch.randn(50, 7, generator=generator), torch.randn(50, 7, generator=generator)
    found = []
    for function in (tanh, torch.tanh):
        given = inputs.clone().requires_grad_()
        output = function(given * 2)
        (first,) = torch.autograd.grad((output * weights).sum(), given, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), given)
        found.append((output.detach(), first.detach(), second))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Input #. requires gradient:UserWarning")
def test_gradients_are_those_of_finite_differences() -> None:
    numbers = torch.linspace(-2, 2, 12, requires_grad=True)
    assert torch.autograd.gradcheck(tanh, numbers, eps=1e-2, atol=1e-3, rtol=1e-3)
    assert torch.autograd.gradgradcheck(tanh, numbers, eps=1e-2, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    "features",
    [torch.randn(6, 4).double(), torch.randn(4, 6).t(), torch.randn(6, 4).bfloat16(), torch.randn(0, 4)],
    ids=["double", "transposed", "bfloat16", "empty"],
)
def test_other_dtypes_and_layouts_match_torch_exactly(features: torch.Tensor) -> None:
    torch.testing.assert_close(tanh(features), features.tanh(), rtol=0, atol=0)


def test_vmap_and_grad_transforms_match_torch() -> None:
    features = torch.linspace(-2, 2, 12).view(3, 4)
    summed = torch.func.vmap(lambda row: tanh(row).sum())(features)
    torch.testing.assert_close(summed, features.tanh().sum(1))
    gradient = torch.func.grad(lambda given: tanh(given).sum())(features)
    torch.testing.assert_close(gradient, 1 - features.tanh().square())


def test_networks_with_tanh_match_torch_modules() -> None:
    network = MLP(5, (32, 32), "tanh")
    theirs = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    theirs.load_state_dict(dict(zip(theirs.state_dict(), network.state_dict().values(), strict=True)))
    # Enough rows for the first layer's gradients to be computed by rows as well.
    inputs = torch.randn(2_000, 5, generator=torch.Generator().manual_seed(1))
    outputs = [module(inputs) for module in (network, theirs)]
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-6)
    gradients = [
        torch.autograd.grad(output.square().sum(), list(module.parameters()))
        for module, output in zip((network, theirs), outputs, strict=True)
    ]
    for ours, their in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, their, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
def test_traced_and_exported_networks_match_the_network() -> None:
    network, given = MLP(5, (8,), "tanh"), torch.randn(2_000, 5, generator=torch.Generator().manual_seed(1))
    traced = torch.jit.trace(network, given)  # type: ignore[no-untyped-call]
    shapes = ({0: torch.export.Dim("rows")},)
    exported = torch.export.export(network, (given,), dynamic_shapes=shapes, strict=False).module()
    for rows in (given[:3], 2 * given):
        torch.testing.assert_close(traced(rows), network(rows), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(exported(rows), network(rows), rtol=1e-5, atol=1e-6)
