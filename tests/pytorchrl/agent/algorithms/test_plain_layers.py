"""Layers without autograd have autograd's outputs and gradients, in both precisions and with many threads."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from pytorchrl.agent.actors.layers.mlp import PlainActivation
from pytorchrl.agent.algorithms.plain_layers import Sweep
from pytorchrl.agent.ops.dispatch import MOST_THREADS


@pytest.fixture
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(MOST_THREADS + 1)
    yield
    torch.set_num_threads(before)


def check(activation: PlainActivation, dtype: torch.dtype, outputs: int = 2) -> None:
    torch.manual_seed(0)
    module = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    network = nn.Sequential(nn.Linear(3, 32), module(), nn.Linear(32, 16), module(), nn.Linear(16, outputs)).to(dtype)
    parameters = [parameter.detach() for parameter in network.parameters()]
    sweep, gradients = Sweep(parameters, activation), [torch.empty_like(parameter) for parameter in parameters]
    for rows in (40, 7, 1):
        inputs, weights = torch.randn(rows, 3, dtype=dtype), torch.randn(rows, outputs, dtype=dtype)
        output = network(inputs)
        wanted = torch.autograd.grad((output * weights).sum(), list(network.parameters()))
        found = sweep.forward(inputs, parameters)
        sweep.backward(weights, parameters, gradients, adds=False)
        torch.testing.assert_close(found, output.detach(), rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outputs", [1, 2])
def test_outputs_and_gradients_equal_those_of_autograd(
    activation: PlainActivation, dtype: torch.dtype, outputs: int
) -> None:
    check(activation, dtype, outputs)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_outputs_and_gradients_equal_those_of_autograd_with_many_threads(
    activation: PlainActivation, outputs: int
) -> None:
    check(activation, torch.float32, outputs)


def test_gradients_of_nan_units_are_nan() -> None:
    parameters = [torch.eye(2), torch.zeros(2), torch.ones(1, 2), torch.zeros(1)]
    sweep = Sweep(parameters, "relu")
    assert sweep.forward(torch.tensor([[torch.nan, 1.0]]), parameters).isnan().all()
    gradients = [torch.empty_like(parameter) for parameter in parameters]
    sweep.backward(torch.ones(1, 1), parameters, gradients, adds=False)
    assert gradients[0][0, 0].isnan()
    assert gradients[0][1, 1] == 1


def test_each_row_of_a_bias_applies_to_its_own_group_of_inputs() -> None:
    torch.manual_seed(0)
    inputs, common = torch.randn(12, 3), torch.randn(4, 8, requires_grad=True)
    first, last = torch.randn(8, 3, requires_grad=True), torch.randn(1, 8, requires_grad=True)
    units = (inputs @ first.T + common.repeat_interleave(3, dim=0)).relu()
    wanted = torch.autograd.grad((units @ last.T).square().sum() / 2, [first, common, last])
    parameters = [first.detach(), common.detach(), last.detach(), torch.zeros(1)]
    sweep, gradients = Sweep(parameters, "relu"), [torch.zeros_like(parameter) for parameter in parameters]
    values = sweep.forward(inputs, parameters)
    sweep.backward(values, parameters, gradients, adds=True)
    for ours, theirs in zip(gradients, wanted, strict=False):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
