"""Layers without autograd have autograd's outputs and gradients, in every kind of number and with any threads."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from pytorchrl.agent.actors.layers.mlp import PlainActivation
from pytorchrl.agent.algorithms import plain_layers
from pytorchrl.agent.algorithms.plain_layers import Sweep


@pytest.fixture
def many_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(plain_layers.MOST_THREADS + 1)
    yield
    torch.set_num_threads(before)


def check(activation: PlainActivation, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    network = nn.Sequential(nn.Linear(3, 32), module(), nn.Linear(32, 16), module(), nn.Linear(16, 2)).to(dtype)
    parameters = [parameter.detach() for parameter in network.parameters()]
    sweep, gradients = Sweep(parameters, activation), [torch.empty_like(parameter) for parameter in parameters]
    for rows in (40, 7, 1):
        inputs, weights = torch.randn(rows, 3, dtype=dtype), torch.randn(rows, 2, dtype=dtype)
        output = network(inputs)
        wanted = torch.autograd.grad((output * weights).sum(), list(network.parameters()))
        found = sweep.forward(inputs, parameters)
        sweep.backward(weights, parameters, gradients, adds=False)
        torch.testing.assert_close(found, output.detach(), rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_gradients_are_autograds(activation: PlainActivation, dtype: torch.dtype) -> None:
    check(activation, dtype)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_they_are_with_many_threads(activation: PlainActivation) -> None:
    check(activation, torch.float32)
