"""Fast path of fully connected layers for few rows, as in acting: several layers in one compiled call.

With small matrices, torch's overhead takes longer than the product: two layers of 64 units with tanh take 8
microseconds for one observation, and 5 here; two of 256 with ReLUs take 10 and 8.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pytorchrl.agent.ops import products
from pytorchrl.agent.ops.dispatch import hooks_of, is_recorded, new_results, plain_address
from pytorchrl.agent.ops.layer_kernels import (
    RELU,
    TANGENT,
    apply_layer,
    apply_layers_by_columns,
    apply_layers_by_rows,
)

ACTIVATIONS = {"relu": RELU, "tanh": TANGENT}


def linear(layer: nn.Module, features: Tensor) -> Tensor:
    """Compute ``layer(features)``, (B, inputs) to (B, outputs), of ``nn.Linear`` without a module's call overhead."""
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    if type(layer) is not nn.Linear or has_hooks:
        output: Tensor = layer(features)
        return output
    parameters = layer._parameters
    weight, bias = parameters["weight"], parameters["bias"]
    assert weight is not None
    quick = products.linear(features, weight, bias)
    if quick is not None:
        return quick
    is_small = layer.out_features <= _FEW_OUTPUTS
    is_large = _READS_LARGE_ONCE and layer.in_features * layer.out_features >= _MANY_WEIGHTS
    if (is_small or is_large) and torch.is_inference_mode_enabled():
        quick = (_small_product if is_small else _large_product)(weight, bias, features)
        return F.linear(features, weight, bias) if quick is None else quick
    if (
        layer.in_features <= _FEW_INPUTS
        and bias is not None
        and features.is_cpu
        and features.dim() == 2
        and not is_recorded()
        and features.shape[0] >= _MANY_ROWS
    ):
        # The gradient has the weight's layout, and for so few inputs it takes half of the time when transposed.
        return torch.addmm(bias, features, weight.t().contiguous())
    return F.linear(features, weight, bias)


def _small_product(weight: Tensor, bias: Tensor | None, features: Tensor) -> Tensor | None:
    """Compute ``F.linear`` by a kernel, in inference mode; return None where torch has to compute it."""
    if is_recorded() or features.dim() != 2 or bias is None:
        return None
    (rows, width), (outputs, inputs) = features.shape, weight.shape
    if not (rows <= _MOST_COLUMNS and width == inputs and bias.numel() == outputs):
        return None
    weight_at, bias_at, features_at = plain_address(weight), plain_address(bias), plain_address(features)
    if weight_at is None or bias_at is None or features_at is None:
        return None
    results = new_results((rows, outputs))
    apply_layer(weight_at, bias_at, features_at, results.data_ptr(), rows, inputs, outputs)
    return results


def _large_product(weight: Tensor, bias: Tensor | None, features: Tensor) -> Tensor | None:
    """Compute ``F.linear`` of weights that do not fit the CPU's cache; return None where torch's order is faster.

    Of the CPUs measured, one with AVX-512 takes two thirds of torch's time, and one without it twice as long.
    """
    if is_recorded() or features.dim() != 2 or bias is None or not features.is_cpu:
        return None
    if not _LEAST_ROWS_OF_LARGE <= len(features) <= _MOST_ROWS_OF_LARGE:
        return None
    # The weights are read once and in order: 0.45 instead of 0.69 ms for 8 rows of 3,136 features to 512.
    return torch.mm(weight, features.t()).t().contiguous().add_(bias)


class QuickLayers:
    """Fully connected layers, each followed by an activation, without gradients and for few rows.

    Args:
        layers: at least one.
        activation: of all of them, a key of :data:`ACTIVATIONS`.
        last: a further layer, which no activation follows.
    """

    def __init__(self, layers: Sequence[nn.Linear], activation: str, last: nn.Linear | None = None) -> None:
        self._layers = [*layers] if last is None else [*layers, last]
        self._activation, self._activated = ACTIVATIONS[activation], len(layers)
        weights = max(1, sum(layer.in_features * layer.out_features for layer in self._layers))
        self._by_rows = range(1, min(_MOST_ROWS, _MOST_PRODUCTS_BY_ROWS // weights) + 1)
        """Numbers of rows that are computed one row at a time."""
        self._by_columns = range(_LEAST_COLUMNS, min(_MOST_COLUMNS, _MOST_PRODUCTS_BY_COLUMNS // weights) + 1)
        """Numbers of rows that are computed together, unit by unit; more are left to torch."""
        self._laid_out = _LaidOut([], None, 0, 0)
        self._hooks = hooks_of(*self._layers)

    def __call__(self, features: Tensor) -> Tensor | None:
        """Map (N, inputs) to (N, outputs) in inference mode; return None where torch has to compute it."""
        # In tracing, even the number of rows may be symbolic.
        if not torch.is_inference_mode_enabled() or is_recorded() or features.dim() != 2 or any(self._hooks):
            return None
        rows, inputs = features.shape
        if rows in self._by_rows:
            kernel = apply_layers_by_rows
        elif rows in self._by_columns:
            kernel = apply_layers_by_columns
        else:
            return None
        laid_out, features_at = self._layout(), plain_address(features)
        table = laid_out.table
        if table is None or features_at is None or inputs != laid_out.inputs:
            return None
        outputs = new_results((rows, laid_out.outputs))
        kernel(table, features_at, outputs.data_ptr(), rows, self._activation, self._activated)
        return outputs

    def _layout(self) -> "_LaidOut":
        """Return the current addresses of the parameters, which may have been moved or replaced since the last call."""
        parameters = [each for layer in self._layers for each in layer._parameters.values() if each is not None]
        places = [fact for each in parameters for fact in (each.data_ptr(), each.numel(), each.is_contiguous())]
        laid_out = self._laid_out
        if places != laid_out.places:
            # Replaced as a whole, because several threads may act.
            table = self._table()
            ends = (0, 0) if table is None else (int(table[0, 2]), int(table[-1, 3]))
            laid_out = self._laid_out = _LaidOut(places, table, *ends)
        return laid_out

    def _table(self) -> NDArray[np.int64] | None:
        rows: list[tuple[int, ...]] = []
        for layer in self._layers:
            weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
            # A parametrised layer has no parameter of that name.
            if weight is None or bias is None:
                return None
            (outputs, inputs), weight_at, bias_at = weight.shape, plain_address(weight), plain_address(bias)
            chained = not rows or inputs == rows[-1][3]
            if weight_at is None or bias_at is None or len(bias) != outputs or not chained:
                return None
            rows.append((weight_at, bias_at, inputs, outputs))
        return np.array(rows)


class _LaidOut(NamedTuple):
    """Addresses of the parameters of layers."""

    places: list[int]
    """Address, size and contiguity of each parameter."""
    table: NDArray[np.int64] | None
    """The layers as the kernels take them; None where the kernels cannot compute them."""
    inputs: int
    """Of the first layer."""
    outputs: int
    """Of the last layer."""


_FEW_INPUTS, _MANY_ROWS = 32, 1_024
_FEW_OUTPUTS = 8
_READS_LARGE_ONCE = torch.backends.cpu.get_cpu_capability() == "AVX512"
_MANY_WEIGHTS, _LEAST_ROWS_OF_LARGE, _MOST_ROWS_OF_LARGE = 1_000_000, 8, 32
_MOST_ROWS, _MOST_PRODUCTS_BY_ROWS = 16, 72_000
_LEAST_COLUMNS, _MOST_COLUMNS, _MOST_PRODUCTS_BY_COLUMNS = 32, 64, 400_000
"""Limits beyond which torch takes less time, as measured with two layers of 32 to 256 units."""
