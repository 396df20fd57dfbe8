"""The soft maximum of a critic's values over many drawn actions, as a loss whose gradient is computed beside it.

Thousands of rows of hidden units do not fit a processor's cache, and most of what autograd adds to the products of
matrices is spent on moving them. States are therefore taken in blocks that fit, each forward and at once backward: an
update of CQL takes two thirds of the time. Where a critic is more than fully connected layers with ReLUs, or computes
on another device, autograd does it.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pytorchrl.agent.actors.heads.values import ActionValueLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Repeated, View

_ROWS_OF_A_BLOCK = 240
"""A quarter of a megabyte for each layer of 256 units."""


def weighted_soft_maximum(
    critic: Network,
    view: View,
    action: Tensor,
    log_density: Tensor,
    weight: Tensor,
    at_least: Tensor | None = None,
) -> Tensor:
    """(): the weighted sum over rows of ``log(sum(exp(Q(s, a) - log p(a))))``, a sum over drawn actions.

    Args:
        critic: of observations and actions; gets the gradient.
        view: of N rows.
        action: (N, M, A).
        log_density: (N, M), by which each action was drawn.
        weight: (N, 1), of the rows.
        at_least: (N, M), which values count as where they are less; None for no such bound.
    """
    number = action.shape[1]
    layers = _relu_layers(critic)
    if layers is None or not torch.is_grad_enabled():
        values: Tensor = critic(Repeated(view, number), action.flatten(0, 1)).mean.view(-1, number)
        values = values if at_least is None else torch.maximum(values, at_least)
        return (weight * (values - log_density).logsumexp(1, keepdim=True)).sum()
    features = view.features(critic.body)[:, None].expand(-1, number, -1)
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    inputs = torch.cat([features, action], dim=2)
    total: Tensor = _Blockwise.apply(  # type: ignore[no-untyped-call]
        inputs, log_density, weight, at_least, *parameters
    )
    return total


def _relu_layers(critic: Network) -> Sequence[nn.Linear] | None:
    """The critic's layers, each but the last followed by a ReLU; None where it is anything else."""
    hidden = None if critic.joint is None else critic.joint.relu_layers
    last: Any = critic.head.layer if type(critic.head) is ActionValueLayer else None
    has_parameters_before = any(True for _ in critic.body.parameters())
    if hidden is None or type(last) is not nn.Linear or has_parameters_before or critic._forward_hooks:
        return None
    return [*hidden, last] if last.weight.device.type == "cpu" else None


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, log_density: Tensor, weight: Tensor, at_least: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        gradients = [torch.zeros_like(parameter) for parameter in parameters]
        number = inputs.shape[1]
        states = max(1, _ROWS_OF_A_BLOCK // number)
        # The same memory for every block, which stays in the cache.
        units, slopes = ([inputs.new_empty(states * number, len(each)) for each in weights[:-1]] for _ in range(2))
        all_values = []
        parts = (torch.split(tensor, states) for tensor in (inputs, log_density, weight))
        bounds = repeat(None) if at_least is None else torch.split(at_least, states)
        for block, density, share, bound in zip(*parts, bounds, strict=False):
            rows, outputs = len(block) * number, [block.flatten(0, 1)]
            for matrix, bias, to in zip(weights, biases, units, strict=False):
                outputs.append(torch.mm(outputs[-1], matrix.T, out=to[:rows]).add_(bias).relu_())
            values = torch.addmm(biases[-1], outputs[-1], weights[-1].T).view(-1, number)
            counted = (values if bound is None else torch.maximum(values, bound)) - density
            all_values.append(counted)
            slope = share * counted.softmax(1)
            slope = (slope if bound is None else slope * (values > bound)).view(-1, 1)
            for layer in reversed(range(len(weights))):
                below = outputs[layer]
                gradients[2 * layer].addmm_(slope.T, below)
                gradients[2 * layer + 1].add_(slope.sum(0))
                if layer:
                    # What a ReLU let pass is above 0, and is not needed any more.
                    slope = torch.mm(slope, weights[layer], out=slopes[layer - 1][:rows]).mul_(below.sign_())
        ctx.save_for_backward(*gradients)
        return (weight * torch.cat(all_values).logsumexp(1, keepdim=True)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *(gradient * each for each in ctx.saved_tensors)
