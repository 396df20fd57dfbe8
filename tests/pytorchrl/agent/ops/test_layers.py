"""Compiled layers for small batches compute what torch's layers do, and leave other inputs to torch."""

import copy
import math
from collections.abc import Callable
from typing import cast, get_args

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import MLP, PlainActivation


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def make_mlp(activation: PlainActivation = "tanh", sizes: tuple[int, ...] = (64, 64)) -> MLP:
    torch.manual_seed(0)
    return MLP(5, sizes, activation, "uniform")


def in_torch(network: MLP, features: Tensor) -> Tensor:
    for layer in network.layers:
        features = getattr(torch, network.activation)(cast("nn.Linear", layer)(features))
    return features


@pytest.mark.parametrize("activation", get_args(PlainActivation))
@pytest.mark.parametrize("sizes", [(64, 64), (7, 3), (1,), (130, 61), (32, 5, 18)])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 32, 33, 50, 64, 65])
def test_a_network_matches_torch(activation: PlainActivation, sizes: tuple[int, ...], rows: int) -> None:
    network, features = make_mlp(activation, sizes), random_tensor(rows, 5)
    before = features.clone()
    with torch.inference_mode():
        output = network(features)
    torch.testing.assert_close(output, in_torch(network, features).detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(features, before)


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("activation", get_args(PlainActivation))
def test_nan_and_infinity_propagate_as_in_torch(rows: int, activation: PlainActivation) -> None:
    network, features = make_mlp(activation, (4,)), random_tensor(rows, 5)
    with torch.inference_mode():
        # Identity weights: one unit gets the number itself, the others its product with zero.
        torch.nn.init.eye_(network.layers[0].weight)
        for column, number in enumerate((math.nan, math.inf, -math.inf)):
            features[:, :4] = 0
            features[:, column] = number
            torch.testing.assert_close(network(features), in_torch(network, features), equal_nan=True)


def changed_in_place(layer: nn.Linear) -> None:
    layer.weight.mul_(2)


def data_replaced(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data * 2


def parameter_replaced(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight * 2)


def converted_to_double(layer: nn.Linear) -> None:
    layer.double()


def laid_out_by_columns(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.t().contiguous().t()


def data_transposed(layer: nn.Linear) -> None:
    if layer.in_features == layer.out_features:
        layer.weight.data = layer.weight.data.t()


def without_bias(layer: nn.Linear) -> None:
    layer.bias = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "change",
    [
        changed_in_place,
        data_replaced,
        parameter_replaced,
        converted_to_double,
        laid_out_by_columns,
        data_transposed,
        without_bias,
    ],
)
def test_changed_weights_take_effect(change: Callable[[nn.Linear], None]) -> None:
    network, features = make_mlp(), random_tensor(3, 5)
    with torch.inference_mode():
        network(features)
    with torch.no_grad():
        for layer in network.layers:
            change(cast("nn.Linear", layer))
    features = features.to(cast("nn.Linear", network.layers[0]).weight.dtype)
    with torch.inference_mode():
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_removing_units_in_place_takes_effect() -> None:
    network, features = make_mlp(sizes=(64, 8)), random_tensor(3, 5)
    with torch.inference_mode():
        network(features)
        last = cast("nn.Linear", network.layers[-1])
        last.weight.data, last.bias.data = last.weight.data[:5], last.bias.data[:5]
        assert network(features).shape == (3, 5)
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_a_copy_has_weights_of_its_own() -> None:
    network, features = make_mlp(), random_tensor(3, 5)
    with torch.inference_mode():
        before = network(features)
        other = copy.deepcopy(network)
        for parameter in other.parameters():
            parameter.zero_()
        assert not other(features).any()
        assert torch.equal(network(features), before)


@pytest.mark.parametrize("rows", [1, 64])
def test_features_of_another_width_are_refused_by_torch(rows: int) -> None:
    with torch.inference_mode():
        for width in (4, 6):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                make_mlp()(random_tensor(rows, width))


@pytest.mark.parametrize(
    "features",
    [
        random_tensor(5, 3).t(),
        random_tensor(3, 10)[:, ::2],
        random_tensor(0, 5),
        random_tensor(5),
        random_tensor(2, 3, 5),
    ],
    ids=["transposed", "strided", "empty", "vector", "nested"],
)
def test_features_of_any_layout_and_shape_match_torch(features: Tensor) -> None:
    network = make_mlp()
    with torch.inference_mode():
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_vmap_matches_torch() -> None:
    network, features = make_mlp(), random_tensor(3, 2, 5)
    with torch.inference_mode():
        mapped = torch.func.vmap(network)(features)
        torch.testing.assert_close(mapped, in_torch(network, features), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
def test_a_trace_in_inference_mode_matches_torch_for_other_batch_sizes() -> None:
    network, features = make_mlp(), random_tensor(2, 5)
    with torch.inference_mode():
        traced = torch.jit.trace(network, features)  # type: ignore[no-untyped-call]
        for rows in (1, 40):
            other = random_tensor(rows, 5)
            torch.testing.assert_close(traced(other), in_torch(network, other), rtol=1e-5, atol=1e-6)


def bias_of_another_shape(layer: nn.Linear) -> None:
    layer.bias = nn.Parameter(torch.ones(1))


def seen_as_another_shape(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.view(32, 2 * layer.in_features)


def test_a_bias_of_another_shape_is_broadcast_as_by_torch() -> None:
    network, features = make_mlp(), random_tensor(3, 5)
    for layer in network.layers:
        bias_of_another_shape(cast("nn.Linear", layer))
    with torch.inference_mode():
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_weights_of_the_same_memory_in_another_shape_are_refused_by_torch() -> None:
    network, features = make_mlp(), random_tensor(3, 5)
    with torch.inference_mode():
        network(features)
        seen_as_another_shape(cast("nn.Linear", network.layers[1]))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            network(features)
