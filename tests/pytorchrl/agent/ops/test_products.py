"""Products by oneDNN equal those of torch, and are left to torch where it is faster or has to know of them."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.ops import products
from pytorchrl.agent.ops.products import Linear, matmul, matmul_into_, stacked_linear

ROWS, SIZE = 128, 256
RELATIVE = {"rtol": 1e-4, "atol": 1e-3}
"""Sums of 256 products in another order."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the left factors that oneDNN multiplies, on every CPU."""
    shapes: list[tuple[int, ...]] = []
    product = products._product

    def recorded(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(tuple(left.shape))
        return product(left, right, bias)

    monkeypatch.setattr(products, "_HAS_ONEDNN", True)
    monkeypatch.setattr(products, "_product", recorded)
    monkeypatch.setattr("pytorchrl.agent.actors.layers.linear_layers.LINEAR", Linear)
    return shapes


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed))


def layer_of(size: int = SIZE) -> nn.Linear:
    torch.manual_seed(0)
    return Linear(size, size)


def test_a_layer_has_the_outputs_and_gradients_of_torch(calls: list[tuple[int, ...]]) -> None:
    layer, features = layer_of(), random_tensor(ROWS, SIZE).requires_grad_()
    reference, alike = copy.deepcopy(layer), features.detach().clone().requires_grad_()
    outputs, expected = layer(features), F.linear(alike, reference.weight, reference.bias)
    slope = random_tensor(ROWS, SIZE, seed=1)
    outputs.backward(slope)
    expected.backward(slope)
    assert len(calls) == 3
    torch.testing.assert_close(outputs, expected, **RELATIVE)
    for computed, wanted in ((features, alike), (layer.weight, reference.weight), (layer.bias, reference.bias)):
        torch.testing.assert_close(computed.grad, wanted.grad, **RELATIVE)


def test_there_are_gradients_of_gradients(calls: list[tuple[int, ...]]) -> None:
    layer, features = layer_of(), random_tensor(ROWS, SIZE).requires_grad_()

    def penalty(outputs: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(outputs.square().sum(), features, create_graph=True)
        (gradient,) = torch.autograd.grad(slope.square().mean(), layer.weight)
        return gradient

    computed = penalty(layer(features))
    assert calls
    torch.testing.assert_close(computed, penalty(F.linear(features, layer.weight, layer.bias)), **RELATIVE)


def test_batches_of_gradients_and_the_transforms_of_torch_func_are_those_of_torch(
    calls: list[tuple[int, ...]],
) -> None:
    layer, features = layer_of(), random_tensor(ROWS, SIZE).requires_grad_()
    slopes = random_tensor(2, ROWS, SIZE)
    outputs = layer(features)
    (together,) = torch.autograd.grad(outputs, features, slopes, is_grads_batched=True, retain_graph=True)
    for slope, gradient in zip(slopes, together, strict=True):
        torch.testing.assert_close(gradient, torch.autograd.grad(outputs, features, slope, retain_graph=True)[0])
    gradients = torch.func.grad(lambda rows: (slopes[0] * layer(rows)).sum())(features.detach())
    torch.testing.assert_close(gradients, slopes[0] @ layer.weight, **RELATIVE)


@pytest.mark.parametrize("is_inference", [False, True])
def test_a_network_without_gradients_has_the_outputs_of_torch(is_inference: bool, calls: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    network, features = MLP(17, (SIZE, SIZE), "relu", "uniform"), random_tensor(ROWS, 17)
    with torch.inference_mode() if is_inference else torch.no_grad():
        outputs = network(features)
    expected = features
    for layer in network.layers:
        assert isinstance(layer, Linear)
        expected = torch.relu(F.linear(expected, layer.weight, layer.bias))
    assert calls == [(ROWS, SIZE)]
    torch.testing.assert_close(outputs, expected.detach(), **RELATIVE)


def test_infinite_and_undefined_numbers_stay_visible(calls: list[tuple[int, ...]]) -> None:
    layer, features = layer_of(), random_tensor(ROWS, SIZE)
    features[3, 5], features[4, 6] = torch.nan, torch.inf
    with torch.no_grad():
        outputs = torch.relu(layer(features))
    assert calls
    assert outputs[3].isnan().all()
    assert outputs[4].isinf().any()
    assert outputs[5:].isfinite().all()


@pytest.mark.parametrize(
    "features",
    [
        pytest.param(random_tensor(8, SIZE), id="few rows"),
        pytest.param(random_tensor(131, SIZE), id="rows that vary between batches"),
        pytest.param(random_tensor(ROWS, 2, SIZE), id="more dimensions"),
        pytest.param(random_tensor(SIZE, ROWS).t(), id="transposed"),
    ],
)
def test_other_features_are_left_to_torch(features: Tensor, calls: list[tuple[int, ...]]) -> None:
    layer = layer_of()
    outputs = layer(features)
    assert not calls
    torch.testing.assert_close(outputs, F.linear(features, layer.weight, layer.bias))


@pytest.mark.filterwarnings("ignore:TF32 acceleration:UserWarning")
def test_onednn_can_be_disabled_in_torch(calls: list[tuple[int, ...]]) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        layer_of()(random_tensor(ROWS, SIZE))
        matmul(random_tensor(SIZE, SIZE), random_tensor(SIZE, SIZE), rows=SIZE, out=torch.empty(SIZE, SIZE))
    assert not calls


def test_double_precision_and_autocast_are_left_to_torch(calls: list[tuple[int, ...]]) -> None:
    layer = layer_of()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(random_tensor(ROWS, SIZE)).dtype is torch.bfloat16
    assert layer.double()(random_tensor(ROWS, SIZE).double()).dtype is torch.float64
    doubles = random_tensor(SIZE, SIZE).double()
    assert matmul(doubles, doubles, rows=SIZE, out=torch.empty_like(doubles)).dtype is torch.float64
    assert not calls


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")
def test_a_layer_is_traced_and_exported_as_torch_computes_it(calls: list[tuple[int, ...]]) -> None:
    network, features = MLP(SIZE, (SIZE,), "relu", "uniform"), random_tensor(ROWS, SIZE)
    program = torch.export.export(network, (features,))
    traced = torch.jit.trace(network, random_tensor(2, SIZE), check_trace=False)  # type: ignore[no-untyped-call]
    layer = network.layers[0]
    assert isinstance(layer, Linear)
    torch.testing.assert_close(traced(features), torch.relu(F.linear(features, layer.weight, layer.bias)))
    assert not calls
    assert "mkldnn" not in str(program.graph)


@pytest.mark.parametrize("adds", [False, True])
def test_a_product_is_written_or_added(adds: bool, calls: list[tuple[int, ...]]) -> None:
    left, right, total = random_tensor(SIZE, ROWS).t(), random_tensor(SIZE, SIZE), random_tensor(ROWS, SIZE)
    expected = total + left @ right if adds else left @ right
    matmul_into_(total, left, right, rows=ROWS, adds=adds)
    assert calls
    torch.testing.assert_close(total, expected, **RELATIVE)


def test_layers_of_several_networks_have_the_outputs_of_torch(calls: list[tuple[int, ...]]) -> None:
    features, weight, bias = random_tensor(3, ROWS, SIZE), random_tensor(3, SIZE, SIZE), random_tensor(3, 1, SIZE)
    outputs, expected = stacked_linear(features, weight, bias), torch.baddbmm(bias, features, weight)
    assert calls == [(ROWS, SIZE)] * 3
    torch.testing.assert_close(outputs, expected, **RELATIVE)
    stacked_linear(features.requires_grad_(), weight, bias).sum().backward()
    assert features.grad is not None
    assert len(calls) == 3
    torch.testing.assert_close(stacked_linear(features[:, :31], weight, bias), expected[:, :31], **RELATIVE)


def test_without_the_operator_torch_computes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Tensor:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(products, "_processor", lambda: "AuthenticAMD")
    monkeypatch.setattr(products, "_product", missing)
    assert not products._has_faster_onednn()
