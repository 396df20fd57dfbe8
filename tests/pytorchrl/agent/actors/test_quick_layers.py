"""Compiled layers compute what torch's do, for the few rows of acting and for what only looks like them."""

import copy
import math
from collections.abc import Callable
from typing import Any, cast, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers import quick_layers
from pytorchrl.agent.actors.layers.mlp import MLP, PlainActivation
from pytorchrl.agent.actors.layers.quick_layers import linear

KERNELS = "apply_layers_by_rows", "apply_layers_by_columns", "apply_layer"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were called."""
    names: list[str] = []

    def recorded(name: str) -> Callable[..., None]:
        kernel = getattr(quick_layers, name)

        def call(*arguments: Any) -> None:
            names.append(name)
            kernel(*arguments)

        return call

    for name in KERNELS:
        monkeypatch.setattr(quick_layers, name, recorded(name))
    return names


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def made(activation: PlainActivation = "tanh", sizes: tuple[int, ...] = (64, 64)) -> MLP:
    torch.manual_seed(0)
    return MLP(5, sizes, activation, "uniform")


def in_torch(network: MLP, features: Tensor) -> Tensor:
    for layer in network.layers:
        features = getattr(torch, network.activation)(cast("nn.Linear", layer)(features))
    return features


@pytest.mark.parametrize("activation", get_args(PlainActivation))
@pytest.mark.parametrize("sizes", [(64, 64), (7, 3), (1,), (130, 61), (32, 5, 18)])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 32, 33, 50, 64, 65])
def test_layers_are_torchs(activation: PlainActivation, sizes: tuple[int, ...], rows: int) -> None:
    network, features = made(activation, sizes), drawn(rows, 5)
    before = features.clone()
    with torch.inference_mode():
        output = network(features)
    torch.testing.assert_close(output, in_torch(network, features).detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(features, before)


@pytest.mark.parametrize(
    ("rows", "kernel"), [(1, "apply_layers_by_rows"), (16, "apply_layers_by_rows"), (64, "apply_layers_by_columns")]
)
def test_few_rows_are_left_to_kernels(called: list[str], rows: int, kernel: str) -> None:
    with torch.inference_mode():
        made()(drawn(rows, 5))
        linear(nn.Linear(64, 4), drawn(rows, 64))
    assert called == [kernel, "apply_layer"]


def test_gradients_and_many_rows_are_left_to_torch(called: list[str]) -> None:
    network, layer = made(), nn.Linear(5, 2)
    network(drawn(3, 5)).sum().backward()
    linear(layer, drawn(3, 5)).sum().backward()
    with torch.inference_mode():
        network(drawn(2_000, 5))
        linear(layer, drawn(2_000, 5))
    assert not called
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("rows", [1, 3, 64, 2_000])
@pytest.mark.parametrize("outputs", [1, 2, 8, 9])
def test_a_layer_is_torchs(rows: int, outputs: int) -> None:
    layer, features = nn.Linear(17, outputs), drawn(rows, 17)
    with torch.inference_mode():
        torch.testing.assert_close(linear(layer, features), layer(features), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_avx_512", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 8, 32, 33])
def test_a_layer_of_many_weights_is_torchs_on_any_processor(
    monkeypatch: pytest.MonkeyPatch, rows: int, *, has_avx_512: bool
) -> None:
    monkeypatch.setattr(quick_layers, "_READS_LARGE_ONCE", has_avx_512)
    layer, features = nn.Linear(1_000, 1_000), drawn(rows, 1_000)
    with torch.inference_mode():
        output = linear(layer, features)
        torch.testing.assert_close(output, layer(features), rtol=1e-5, atol=1e-5)
        assert output.is_contiguous()


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("activation", get_args(PlainActivation))
def test_what_is_no_number_and_infinity_are_as_torch_has_them(rows: int, activation: PlainActivation) -> None:
    network, features = made(activation, (4,)), drawn(rows, 5)
    with torch.inference_mode():
        # Weights that add nothing else to it, so that infinity does not meet another.
        torch.nn.init.eye_(network.layers[0].weight)
        for column, number in enumerate((math.nan, math.inf, -math.inf)):
            features[:, :4] = 0
            features[:, column] = number
            torch.testing.assert_close(network(features), in_torch(network, features), equal_nan=True)


def changed_in_place(layer: nn.Linear) -> None:
    layer.weight.mul_(2)


def moved(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data * 2


def replaced(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight * 2)


def in_doubles(layer: nn.Linear) -> None:
    layer.double()


def by_columns(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data.t().contiguous().t()


def turned_in_place(layer: nn.Linear) -> None:
    if layer.in_features == layer.out_features:
        layer.weight.data = layer.weight.data.t()


def without_bias(layer: nn.Linear) -> None:
    layer.bias = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "change", [changed_in_place, moved, replaced, in_doubles, by_columns, turned_in_place, without_bias]
)
def test_weights_are_those_of_now(change: Callable[[nn.Linear], None]) -> None:
    network, features = made(), drawn(3, 5)
    with torch.inference_mode():
        network(features)
    with torch.no_grad():
        for layer in network.layers:
            change(cast("nn.Linear", layer))
    features = features.to(cast("nn.Linear", network.layers[0]).weight.dtype)
    with torch.inference_mode():
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_units_that_are_cut_off_in_place_are_gone() -> None:
    network, features = made(sizes=(64, 8)), drawn(3, 5)
    with torch.inference_mode():
        network(features)
        last = cast("nn.Linear", network.layers[-1])
        last.weight.data, last.bias.data = last.weight.data[:5], last.bias.data[:5]
        assert network(features).shape == (3, 5)
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)


def test_a_copy_has_weights_of_its_own() -> None:
    network, features = made(), drawn(3, 5)
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
                made()(drawn(rows, width))
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                linear(nn.Linear(5, 2), drawn(rows, width))


@pytest.mark.parametrize(
    "features",
    [drawn(5, 3).t(), drawn(3, 10)[:, ::2], drawn(0, 5), drawn(5), drawn(2, 3, 5)],
    ids=["columns", "gaps", "none", "one", "nested"],
)
def test_features_in_any_order_and_shape_are_as_in_torch(features: Tensor) -> None:
    network, layer = made(), nn.Linear(5, 2)
    with torch.inference_mode():
        torch.testing.assert_close(network(features), in_torch(network, features), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(linear(layer, features), layer(features), rtol=1e-5, atol=1e-6)


def test_what_torch_transforms_is_computed_by_torch() -> None:
    network, features = made(), drawn(3, 2, 5)
    with torch.inference_mode():
        mapped = torch.func.vmap(network)(features)
        torch.testing.assert_close(mapped, in_torch(network, features), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_records_a_network_while_it_acts_sees_torchs_operations() -> None:
    network, features = made(), drawn(2, 5)
    with torch.inference_mode():
        traced = torch.jit.trace(network, features)  # type: ignore[no-untyped-call]
        for rows in (1, 40):
            other = drawn(rows, 5)
            torch.testing.assert_close(traced(other), in_torch(network, other), rtol=1e-5, atol=1e-6)


def test_a_bias_that_is_not_one_for_each_unit_is_torchs_matter() -> None:
    layer = nn.Linear(5, 4)
    layer.bias = nn.Parameter(torch.ones(1))
    features = drawn(3, 5)
    with torch.inference_mode():
        torch.testing.assert_close(linear(layer, features), F.linear(features, layer.weight, layer.bias))
