"""Fully connected layers with ReLUs, forward and at once backward.

What autograd adds to the products of matrices in networks of a few hundred units is mostly spent on moving hidden units
through memory. Here the gradient of a network is computed while its hidden units are still in the processor's cache,
and the next network, or the next block of rows, uses the same memory. That takes a loss whose slope is known as soon as
its output is.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.heads.values import ActionValueLayer
from pytorchrl.agent.actors.network import Network


def relu_layers(critic: Network) -> Sequence[nn.Linear] | None:
    """The layers of a critic of actions on the CPU, each but the last followed by a ReLU; None where it is not that."""
    hidden = None if critic.joint is None else critic.joint.relu_layers
    last: Any = critic.head.layer if type(critic.head) is ActionValueLayer else None
    has_parameters_before = any(True for _ in critic.body.parameters())
    if hidden is None or type(last) is not nn.Linear or has_parameters_before or critic._forward_hooks:
        return None
    return [*hidden, last] if last.weight.device.type == "cpu" else None


def parameters_of(layers: Sequence[nn.Linear]) -> list[Tensor]:
    """Weight and bias of each layer, in turn."""
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]


class Sweep:
    """Memory for going forward and backward through networks of the same shapes.

    Args:
        parameters: of one of the networks, weight and bias of each layer in turn; only shapes are read.
        rows: the most that go through at once.
    """

    def __init__(self, parameters: Sequence[Tensor], rows: int) -> None:
        sizes = [len(weight) for weight in parameters[:-2:2]]
        self.rows = rows
        self._units = [parameters[0].new_empty(rows, size) for size in sizes]
        # A layer's units are not needed any more when the slopes of the units below are computed.
        above = [*self._units, None][1:]
        self._slopes = [
            units if units is not None and units.shape[1] == size else parameters[0].new_empty(rows, size)
            for units, size in zip(above, sizes, strict=True)
        ]
        self._outputs: list[Tensor] = []

    def forward(self, inputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        rows = len(inputs)
        self._outputs = outputs = [inputs]
        *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
        for (weight, bias), units in zip(hidden, self._units, strict=True):
            outputs.append(torch.addmm(bias, outputs[-1], weight.T, out=units[:rows]).relu_())
        return torch.addmm(last[1], outputs[-1], last[0].T)

    def backward(self, slope: Tensor, parameters: Sequence[Tensor], gradients: Sequence[Tensor], *, adds: bool) -> None:
        """Compute the gradients of the parameters for the rows that went forward last, once.

        Args:
            slope: (N, outputs), the derivative of the loss by each output.
            parameters: as in `forward`.
            gradients: tensors of their shapes, that are changed.
            adds: add to what is in them; False: replace it.
        """
        rows = len(slope)
        for layer in reversed(range(len(self._outputs))):
            below, weight = self._outputs[layer], parameters[2 * layer]
            of_weight, of_bias = gradients[2 * layer], gradients[2 * layer + 1]
            if adds:
                of_weight.addmm_(slope.T, below)
                of_bias.add_(slope.sum(0))
            else:
                torch.mm(slope.T, below, out=of_weight)
                torch.sum(slope, 0, out=of_bias)
            if layer:
                # A product with one column is quicker number by number.
                multiply = torch.mul if slope.shape[1] == 1 else torch.mm
                # What a ReLU let pass is above 0, and is not needed any more.
                slope = multiply(slope, weight, out=self._slopes[layer - 1][:rows]).mul_(below.sign_())
