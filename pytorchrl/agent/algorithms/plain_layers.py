"""Fully connected layers with ReLUs or tangents, forward and at once backward.

What autograd adds to the products of matrices in networks of a few hundred units is mostly spent on moving hidden units
through memory, and in small ones on keeping account of operations. Here the gradient of a network is computed while its
hidden units are still in the processor's cache, and the next network, or the next block of rows, uses the same memory.
That takes a loss whose slope is known as soon as its output is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.heads.gaussian_policies import GaussianLayer
from pytorchrl.agent.actors.heads.policies import CategoricalLayer, DeterministicLayer
from pytorchrl.agent.actors.heads.values import ActionValueLayer, ActionValuesLayer, NumbersLayer
from pytorchrl.agent.actors.layers.layer_kernels import add_bias_and_activate, slope_below_one_output
from pytorchrl.agent.actors.layers.mlp import MLP, PlainActivation
from pytorchrl.agent.actors.layers.quick_layers import ACTIVATIONS
from pytorchrl.agent.actors.layers.quick_module import are_for_kernels
from pytorchrl.agent.actors.network import Network


class PlainLayers(NamedTuple):
    """Fully connected layers on the CPU, each but the last followed by the activation, and by nothing else."""

    parameters: list[Tensor]
    """Weight and bias of each layer, in turn."""
    activation: PlainActivation


def plain_layers(critic: Network) -> PlainLayers | None:
    """The layers of a critic of actions; None where it is more than them."""
    head = critic.head
    if critic.joint is None or type(head) is not ActionValueLayer or critic._forward_hooks:
        return None
    return _plain_layers(critic.body, critic.joint, head.layer)


def plain_layers_of_policy(policy: Network) -> PlainLayers | None:
    """The layers of a policy that ends with a tanh, which is left out; None where it is not that."""
    head = policy.head
    is_squashed = type(head) is DeterministicLayer and head.squash
    return _plain_layers_of_states(policy, head.layer) if is_squashed else None


def plain_layers_of_numbers(network: Network) -> PlainLayers | None:
    """The layers of a network that makes numbers of observations, as state values; None where it is not that."""
    head = network.head
    return _plain_layers_of_states(network, head.layer) if type(head) is NumbersLayer else None


def plain_layers_of_distribution(policy: Network) -> PlainLayers | None:
    """The layers of a policy that makes the logits of actions, or means of normals; None where it is not that."""
    head = policy.head
    is_plain = type(head) is CategoricalLayer or (type(head) is GaussianLayer and head.is_plain)
    return _plain_layers_of_states(policy, head.layer) if is_plain else None


def plain_layers_of_action_values(network: Network) -> PlainLayers | None:
    """The layers of a network that values each action, on no other scale; None where it is not that."""
    head = network.head
    if type(head) is not ActionValuesLayer or head.rescaling is not None or type(head.numbers) is not NumbersLayer:
        return None
    return _plain_layers_of_states(network, head.numbers.layer)


def _plain_layers_of_states(network: Network, last: Any) -> PlainLayers | None:
    body = network.body
    if network.joint is not None or type(body) is not Body:
        return None
    return _plain_layers(body.features, body.hidden, last)


def _plain_layers(before: nn.Module, mlp: MLP, last: Any) -> PlainLayers | None:
    hidden = mlp.plain_layers
    has_parameters_before = any(True for _ in before.parameters())
    if hidden is None or type(last) is not nn.Linear or has_parameters_before or last.weight.device.type != "cpu":
        return None
    parameters = [parameter for layer in (*hidden, last) for parameter in (layer.weight, layer.bias)]
    return PlainLayers(parameters, cast("PlainActivation", mlp.activation))


class Sweep:
    """Memory for going forward and backward through networks of the same shapes.

    The bias of the first of several layers may have several rows, each for as many rows of inputs, in turn: what some
    inputs have in common is computed once.

    Args:
        parameters: of one of the networks, weight and bias of each layer in turn; only shapes are read.
        activation: of all of them.
    """

    def __init__(self, parameters: Sequence[Tensor], activation: PlainActivation) -> None:
        self._activation, self._times_slope_ = activation, _TIMES_SLOPE[activation]
        self._sizes = [len(weight) for weight in parameters[:-2:2]]
        self._rows = 0
        self._units: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._outputs: list[Tensor] = []

    def forward(self, inputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        rows = len(inputs)
        if rows > self._rows:
            self._make_room(rows, parameters[0])
        self._outputs = outputs = [inputs]
        *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
        for (weight, bias), units in zip(hidden, self._units, strict=True):
            products = torch.mm(outputs[-1], weight.T, out=units[:rows])
            outputs.append(_with_bias_and_activation_(products, bias, self._activation))
        return torch.addmm(last[1], outputs[-1], last[0].T)

    def backward(self, slope: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor], *, adds: bool) -> None:
        """Compute the gradients of the parameters for the rows that went forward last, once.

        Args:
            slope: (N, outputs), the derivative of the loss by each output.
            parameters: as in `forward`.
            gradients: tensors of their shapes, that are changed.
            adds: add to what is in them; False: replace it.
        """
        for layer in reversed(range(len(self._outputs))):
            below = self._outputs[layer]
            of_weight, of_bias = gradients[2 * layer], gradients[2 * layer + 1]
            if _FEW * below.shape[1] < slope.shape[1]:
                # A product with few rows takes half the time, or less, of one with few columns.
                product = torch.mm(below.T, slope).T
                of_weight.add_(product) if adds else of_weight.copy_(product)
            elif adds:
                of_weight.addmm_(slope.T, below)
            else:
                torch.mm(slope.T, below, out=of_weight)
            of_rows, axis = (slope, 0) if of_bias.ndim == 1 else (slope.view(len(of_bias), -1, slope.shape[1]), 1)
            if adds:
                of_bias.add_(of_rows.sum(axis))
            else:
                torch.sum(of_rows, axis, out=of_bias)
            if layer:
                slope = self._slope_below(slope, layer, parameters)

    def slope_of_inputs(self, slope: Tensor, parameters: Sequence[Tensor], columns: slice) -> Tensor:
        """(N, columns): the derivative of the loss by some of the inputs; in place of `backward`.

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
            slope_below_one_output(*at, len(units), units.shape[1], ACTIVATIONS[self._activation])
            return below
        # A product with one column is quicker number by number.
        multiply = torch.mul if slope.shape[1] == 1 else torch.mm
        return self._times_slope_(multiply(slope, weight, out=below), units)

    def _make_room(self, rows: int, like: Tensor) -> None:
        self._rows = rows
        self._units = [like.new_empty(rows, size) for size in self._sizes]
        # A layer's units are not needed any more when the slopes of the units below are computed.
        above = [*self._units, None][1:]
        self._slopes = [
            units if units is not None and units.shape[1] == size else like.new_empty(rows, size)
            for units, size in zip(above, self._sizes, strict=True)
        ]


def _with_bias_and_activation_(products: Tensor, bias: Tensor, activation: PlainActivation) -> Tensor:
    """The activation of products (N, units) with a bias, in their place."""
    groups, columns = bias.numel() // bias.shape[-1], bias.shape[-1]
    if are_for_kernels(products, bias):
        # In one pass; torch takes two, and one more before the product, which it adds to what is there.
        rows = len(products) // groups
        at = products.data_ptr(), bias.data_ptr()
        add_bias_and_activate(*at, groups, rows, columns, ACTIVATIONS[activation])
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
"""What takes a slope by an activation's output to one by its input, in place."""
_FEW = 4
"""Inputs of a layer are few where its outputs are more than so many times as many."""
