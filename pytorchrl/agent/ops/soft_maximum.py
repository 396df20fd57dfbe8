"""Log-sum-exp of an MLP's values over several actions of each state, block by block.

Hidden units of thousands of rows do not fit into the processor's cache, and beyond the matrix products autograd spends
most of its time on moving them. States are therefore processed in blocks that fit, each forward and immediately
backward, in reused memory.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pytorchrl.agent.ops.dispatch import address_of, are_for_kernels, is_recorded
from pytorchrl.agent.ops.layer_kernels import add_bias_and_activate, slope_below_one_output
from pytorchrl.agent.ops.layers import KERNELS
from pytorchrl.agent.ops.products import matmul, matmul_into_

_ROWS_OF_A_BLOCK = 960
"""Rows whose hidden units fit into the cache."""
_OF_ONE_LAYER = 2
"""Weight and bias."""


def weighted_soft_maximum(
    values: Tensor, log_density: Tensor, weight: Tensor, at_least: Tensor | None = None
) -> Tensor:
    """Return the weighted sum () over states of ``log(sum(exp(value - log_density)))``, over actions.

    Args:
        values: (N, M), of M actions of each state.
        log_density: (N, M), of each action under its proposal distribution.
        weight: (N, 1), of the states.
        at_least: (N, M), lower bounds of values; None for no bounds.
    """
    values = values if at_least is None else torch.maximum(values, at_least)
    return (weight * (values - log_density).logsumexp(1, keepdim=True)).sum()


def weighted_soft_maximum_of_mlp(
    parameters: Sequence[Tensor],
    activation: str,
    features: Tensor,
    action: Tensor,
    log_density: Tensor,
    weight: Tensor,
    at_least: Tensor | None = None,
) -> Tensor | None:
    """As :func:`weighted_soft_maximum`, of an MLP's values; None where torch has to compute it.

    Args:
        parameters: weight and bias of each layer alternating; the last has one output, and the activation follows
            each of the others.
        activation: of the hidden layers; one of those of the kernels.
        features: (N, F), of the states.
        action: (N, M, A); the inputs of the MLP are features and action, concatenated.
        log_density: as above.
        weight: as above.
        at_least: as above.
    """
    given = [each for each in (features, action, log_density, weight, at_least) if each is not None]
    needs_others = any(each.requires_grad for each in given)
    if is_recorded() or needs_others or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    if activation not in KERNELS or len(parameters) == _OF_ONE_LAYER or not action.numel():
        return None
    if any(address_of(each) is None for each in (*given, *parameters)):
        return None
    total: Tensor = _Blockwise.apply(activation, *given[:4], at_least, *parameters)  # type: ignore[no-untyped-call]
    return total


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        activation: str,
        features: Tensor,
        action: Tensor,
        log_density: Tensor,
        weight: Tensor,
        at_least: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        first, bias, *above = parameters
        number = action.shape[1]
        of_features, of_action = first.split_with_sizes([features.shape[1], action.shape[2]], dim=1)
        # The state's contribution to the first layer is the same for all of its actions.
        base = torch.addmm(bias, features, of_features.T)
        by_base, by_action = torch.zeros_like(base), of_action.new_zeros(of_action.shape)
        gradients = [torch.zeros_like(parameter) for parameter in above]
        states = max(1, _ROWS_OF_A_BLOCK // number)
        passes = _Passes(parameters, activation)
        total = weight.new_zeros(())
        parts = (torch.split(tensor, states) for tensor in (action, base, by_base, log_density, weight))
        bounds = repeat(None) if at_least is None else torch.split(at_least, states)
        for (block, common, by_common, density, share), bound in zip(zip(*parts, strict=True), bounds, strict=False):
            layers = [of_action, common, *above]
            values = passes.forward(block.flatten(0, 1), layers).view(-1, number)
            total += weighted_soft_maximum(values, density, share, bound)
            slope = share * ((values if bound is None else torch.maximum(values, bound)) - density).softmax(1)
            slope = slope if bound is None else slope * (values > bound)
            passes.backward(slope.view(-1, 1), layers, [by_action, by_common, *gradients])
        of_first = torch.cat([by_base.T @ features, by_action], dim=1)
        ctx.save_for_backward(of_first, by_base.sum(0), *gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        needed = zip(gradients, ctx.needs_input_grad[-len(gradients) :], strict=True)
        slopes = (gradient * each if is_needed else None for each, is_needed in needed)
        return None, None, None, None, None, None, *slopes


class _Passes:
    """Forward and backward passes of an MLP with one output, in reused memory.

    The bias of the first layer has several rows, each for an equal number of consecutive input rows.

    Args:
        parameters: weight and bias of each layer alternating; only shapes are read.
        activation: of the hidden layers.
    """

    def __init__(self, parameters: Sequence[Tensor], activation: str) -> None:
        self._activation = activation
        self._sizes = [len(weight) for weight in parameters[:-2:2]]
        self._rows = 0
        self._units: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def forward(self, inputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return the outputs (N, 1) for inputs (N, inputs)."""
        rows = len(inputs)
        if rows > self._rows:
            self._make_room(rows, parameters[0])
        self._outputs = outputs = [inputs]
        *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
        for (weight, bias), units in zip(hidden, self._units, strict=True):
            products = matmul(outputs[-1], weight.T, rows=rows, out=units[:rows])
            outputs.append(self._with_bias_and_activation_(products, bias))
        return torch.addmm(last[1], outputs[-1], last[0].T)

    def backward(self, slope: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Add the parameters' gradients for the inputs of the last `forward`; only once for each.

        Args:
            slope: (N, 1), the derivative of the loss by each output.
            parameters: as in `forward`.
            gradients: tensors of their shapes, modified in place.
        """
        for layer in reversed(range(len(self._outputs))):
            below = self._outputs[layer]
            of_weight, of_bias = gradients[2 * layer], gradients[2 * layer + 1]
            if _FEW * below.shape[1] < slope.shape[1]:
                # The transposed product, with few rows, is faster.
                of_weight.add_(torch.mm(below.T, slope).T)
            else:
                matmul_into_(of_weight, slope.T, below, rows=len(slope), adds=True)
            of_bias.add_(slope.view(*of_bias.shape[:-1], -1, slope.shape[1]).sum(-2))
            if layer:
                slope = self._slope_below(slope, layer, parameters)

    def _slope_below(self, slope: Tensor, layer: int, parameters: Sequence[Tensor]) -> Tensor:
        weight, units, below = parameters[2 * layer], self._outputs[layer], self._slopes[layer - 1][: len(slope)]
        if slope.shape[1] > 1:
            return self._times_slope_(matmul(slope, weight, rows=len(slope), out=below), units)
        if are_for_kernels(slope, weight, units, below):
            at = slope.data_ptr(), weight.data_ptr(), units.data_ptr(), below.data_ptr()
            slope_below_one_output(*at, len(units), units.shape[1], KERNELS[self._activation])
            return below
        # An elementwise product is faster.
        return self._times_slope_(torch.mul(slope, weight, out=below), units)

    def _make_room(self, rows: int, like: Tensor) -> None:
        self._rows = rows
        self._units = [like.new_empty(rows, size) for size in self._sizes]
        # A layer's units are no longer needed once the derivatives by the units below are computed.
        above = [*self._units, None][1:]
        self._slopes = [
            units if units is not None and units.shape[1] == size else like.new_empty(rows, size)
            for units, size in zip(above, self._sizes, strict=True)
        ]

    def _with_bias_and_activation_(self, products: Tensor, bias: Tensor) -> Tensor:
        """Add a bias to products (N, units) and apply the activation, in place."""
        groups, columns = bias.numel() // bias.shape[-1], bias.shape[-1]
        if are_for_kernels(products, bias):
            # One pass over memory; torch takes two.
            rows = len(products) // groups
            at = products.data_ptr(), bias.data_ptr()
            add_bias_and_activate(*at, groups, rows, columns, KERNELS[self._activation])
            return products
        products.view(groups, -1, columns).add_(bias.view(groups, 1, columns))
        return (torch.relu_ if self._activation == "relu" else torch.tanh_)(products)

    def _times_slope_(self, slope: Tensor, output: Tensor) -> Tensor:
        """Convert a derivative by the activation's output into one by its input, in place."""
        if self._activation == "relu":
            return torch.ops.aten.threshold_backward.grad_input(slope, output, 0, grad_input=slope)  # type: ignore[no-any-return]
        return torch.ops.aten.tanh_backward.grad_input(slope, output, grad_input=slope)  # type: ignore[no-any-return]


_FEW = 4
"""A layer has few inputs if it has more than this many times as many outputs."""
