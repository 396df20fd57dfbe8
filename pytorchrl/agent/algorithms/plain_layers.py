"""Manual forward and backward passes of MLPs with ReLU or tanh, faster than autograd on the CPU.

Beyond the matrix products, autograd spends most of its time on memory traffic for hidden units, and in small networks
on bookkeeping. Here the backward pass runs while hidden units are still in the processor's cache, and the next network,
or the next block of rows, reuses the same memory. This needs a loss whose derivative by the output is known in closed
form.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.heads.gaussian_policies import GaussianLayer
from pytorchrl.agent.actors.heads.policies import CategoricalLayer, DeterministicLayer
from pytorchrl.agent.actors.heads.values import ActionValueLayer, ActionValuesLayer
from pytorchrl.agent.actors.layers.mlp import MLP, PlainActivation
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.ops.dispatch import are_for_kernels
from pytorchrl.agent.ops.layer_kernels import add_bias_and_activate, slope_below_one_output
from pytorchrl.agent.ops.layers import KERNELS
from pytorchrl.agent.ops.products import matmul, matmul_into_


class PlainLayers(NamedTuple):
    """An MLP on the CPU: fully connected layers, each but the last followed by the activation only."""

    parameters: list[Tensor]
    """Weight and bias of each layer, alternating."""
    activation: PlainActivation


def plain_layers(critic: Network) -> PlainLayers | None:
    """Return the layers of a Q-network of observations and actions; None if it is not a plain MLP."""
    head = critic.head
    if critic.joint is None or type(head) is not ActionValueLayer or critic._forward_hooks:
        return None
    return _plain_layers(critic.body, critic.joint, head.layer)


def plain_layers_of_policy(policy: Network) -> PlainLayers | None:
    """Return the layers of a deterministic policy, without its final tanh; None if it is not a plain MLP."""
    head = policy.head
    is_squashed = type(head) is DeterministicLayer and head.squash
    return _plain_layers_of_states(policy, head.layer) if is_squashed else None


def plain_layers_of_numbers(network: Network) -> PlainLayers | None:
    """Return the layers of a network with real outputs, such as V(s); None if it is not a plain MLP."""
    head = network.head
    return _plain_layers_of_states(network, head.layer) if type(head) is OutputLayer else None


def plain_layers_of_distribution(policy: Network) -> PlainLayers | None:
    """Return the layers of a policy of logits or Gaussian means; None if it is not a plain MLP."""
    head = policy.head
    if policy.action_mask is not None:
        return None
    is_plain = type(head) is CategoricalLayer or (type(head) is GaussianLayer and head.is_plain)
    return _plain_layers_of_states(policy, head.layer) if is_plain else None


def plain_layers_of_action_values(network: Network) -> PlainLayers | None:
    """Return the layers of a Q-network of discrete actions without rescaling; None if it is not a plain MLP."""
    head = network.head
    if type(head) is not ActionValuesLayer or head.rescaling is not None or type(head.numbers) is not OutputLayer:
        return None
    return _plain_layers_of_states(network, head.numbers.layer)


def _plain_layers_of_states(network: Network, last: Any) -> PlainLayers | None:
    body = network.body
    if network.joint is not None or type(body) is not Body or not isinstance(body.hidden, MLP):
        return None
    return _plain_layers(body.features, body.hidden, last)


def _plain_layers(before: nn.Module, mlp: MLP, last: Any) -> PlainLayers | None:
    layers = linear_layers(before, mlp, last)
    if layers is None or last.weight.device.type != "cpu":
        return None
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    return PlainLayers(parameters, cast("PlainActivation", mlp.activation))


def linear_layers(before: nn.Module, mlp: MLP, last: nn.Module) -> list[nn.Linear] | None:
    """Return an MLP's layers and the last one, all with a bias; None if there are others, or parameters before them."""
    hidden = mlp.plain_layers
    if hidden is None or type(last) is not nn.Linear or last.bias is None or any(True for _ in before.parameters()):
        return None
    return [*hidden, last]


class Sweep:
    """Forward and backward passes of MLPs of the same shapes, in reused memory.

    The bias of the first of several layers may have several rows, each for an equal number of consecutive input rows:
    the contribution that these inputs share is then computed once.

    Args:
        parameters: of one of the networks, weight and bias of each layer alternating; only shapes are read.
        activation: of all networks.
    """

    def __init__(self, parameters: Sequence[Tensor], activation: PlainActivation) -> None:
        self._activation, self._times_slope_ = activation, _TIMES_SLOPE[activation]
        self._sizes = [len(weight) for weight in parameters[:-2:2]]
        self._rows = 0
        self._units: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def forward(self, inputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return the outputs (N, outputs) for inputs (N, inputs)."""
        rows = len(inputs)
        if rows > self._rows:
            self._make_room(rows, parameters[0])
        self._outputs = outputs = [inputs]
        *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
        for (weight, bias), units in zip(hidden, self._units, strict=True):
            products = matmul(outputs[-1], weight.T, rows=rows, out=units[:rows])
            outputs.append(_with_bias_and_activation_(products, bias, self._activation))
        return torch.addmm(last[1], outputs[-1], last[0].T)

    def backward(self, slope: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor], *, adds: bool) -> None:
        """Compute the parameters' gradients for the inputs of the last `forward`; only once for each.

        Args:
            slope: (N, outputs), the derivative of the loss by each output.
            parameters: as in `forward`.
            gradients: tensors of their shapes, modified in place.
            adds: accumulate into the gradients; False overwrites them.
        """
        for layer in reversed(range(len(self._outputs))):
            below = self._outputs[layer]
            of_weight, of_bias = gradients[2 * layer], gradients[2 * layer + 1]
            if _FEW * below.shape[1] < slope.shape[1]:
                # The transposed product, with few rows, takes at most half the time.
                product = torch.mm(below.T, slope).T
                of_weight.add_(product) if adds else of_weight.copy_(product)
            else:
                matmul_into_(of_weight, slope.T, below, rows=len(slope), adds=adds)
            of_rows, axis = (slope, 0) if of_bias.ndim == 1 else (slope.view(len(of_bias), -1, slope.shape[1]), 1)
            if adds:
                of_bias.add_(of_rows.sum(axis))
            else:
                torch.sum(of_rows, axis, out=of_bias)
            if layer:
                slope = self._slope_below(slope, layer, parameters)

    def slope_of_inputs(self, slope: Tensor, parameters: Sequence[Tensor], columns: slice) -> Tensor:
        """Return the derivative (N, columns) of the loss by some of the inputs; instead of `backward`.

        Args:
            slope: (N, outputs), the derivative of the loss by each output.
            parameters: as in `forward`.
            columns: of the inputs.
        """
        for layer in reversed(range(1, len(self._outputs))):
            slope = self._slope_below(slope, layer, parameters)
        return torch.mm(parameters[0][:, columns].T, slope.T).T

    def _slope_below(self, slope: Tensor, layer: int, parameters: Sequence[Tensor]) -> Tensor:
        weight, units, below = parameters[2 * layer], self._outputs[layer], self._slopes[layer - 1][: len(slope)]
        if slope.shape[1] == 1 and are_for_kernels(slope, weight, units, below):
            at = slope.data_ptr(), weight.data_ptr(), units.data_ptr(), below.data_ptr()
            slope_below_one_output(*at, len(units), units.shape[1], KERNELS[self._activation])
            return below
        if slope.shape[1] == 1:
            # An elementwise product is faster.
            return self._times_slope_(torch.mul(slope, weight, out=below), units)
        return self._times_slope_(matmul(slope, weight, rows=len(slope), out=below), units)

    def _make_room(self, rows: int, like: Tensor) -> None:
        self._rows = rows
        self._units = [like.new_empty(rows, size) for size in self._sizes]
        # A layer's units are no longer needed once the derivatives by the units below are computed.
        above = [*self._units, None][1:]
        self._slopes = [
            units if units is not None and units.shape[1] == size else like.new_empty(rows, size)
            for units, size in zip(above, self._sizes, strict=True)
        ]


def _with_bias_and_activation_(products: Tensor, bias: Tensor, activation: PlainActivation) -> Tensor:
    """Add a bias to products (N, units) and apply the activation, in place."""
    groups, columns = bias.numel() // bias.shape[-1], bias.shape[-1]
    if are_for_kernels(products, bias):
        # One pass over memory; torch takes two.
        rows = len(products) // groups
        at = products.data_ptr(), bias.data_ptr()
        add_bias_and_activate(*at, groups, rows, columns, KERNELS[activation])
        return products
    products.view(groups, -1, columns).add_(bias.view(groups, 1, columns))
    return (torch.relu_ if activation == "relu" else torch.tanh_)(products)


def _times_slope_of_relu_(slope: Tensor, output: Tensor) -> Tensor:
    product: Tensor = torch.ops.aten.threshold_backward.grad_input(slope, output, 0, grad_input=slope)
    return product


def _times_slope_of_tanh_(slope: Tensor, output: Tensor) -> Tensor:
    product: Tensor = torch.ops.aten.tanh_backward.grad_input(slope, output, grad_input=slope)
    return product


_TIMES_SLOPE = {"relu": _times_slope_of_relu_, "tanh": _times_slope_of_tanh_}
"""Convert a derivative by an activation's output into one by its input, in place."""
_FEW = 4
"""A layer has few inputs if it has more than this many times as many outputs."""
