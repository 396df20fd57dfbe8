"""The soft maximum of a critic's values over many drawn actions, as a loss whose gradient is computed beside it.

Thousands of rows of hidden units do not fit a processor's cache, and most of what autograd adds to the products of
matrices is spent on moving them. States are therefore taken in blocks that fit, each forward and at once backward: an
update of CQL takes two thirds of the time. Where a critic is more than fully connected layers with ReLUs or tangents,
or computes on another device, autograd does it.
"""

from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pytorchrl.agent.actors.layers.mlp import PlainActivation
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.plain_layers import Sweep, plain_layers

_ROWS_OF_A_BLOCK = 480
"""Half a megabyte for each layer of 256 units."""


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
    layers = plain_layers(critic)
    if layers is None or not torch.is_grad_enabled():
        values: Tensor = critic(Repeated(view, number), action.flatten(0, 1)).mean.view(-1, number)
        values = values if at_least is None else torch.maximum(values, at_least)
        return (weight * (values - log_density).logsumexp(1, keepdim=True)).sum()
    features = view.features(critic.body)[:, None].expand(-1, number, -1)
    inputs = torch.cat([features, action], dim=2)
    total: Tensor = _Blockwise.apply(  # type: ignore[no-untyped-call]
        layers.activation, inputs, log_density, weight, at_least, *layers.parameters
    )
    return total


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        activation: PlainActivation,
        inputs: Tensor,
        log_density: Tensor,
        weight: Tensor,
        at_least: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        gradients = [torch.zeros_like(parameter) for parameter in parameters]
        number = inputs.shape[1]
        states = max(1, _ROWS_OF_A_BLOCK // number)
        sweep = Sweep(parameters, activation)
        all_values = []
        parts = (torch.split(tensor, states) for tensor in (inputs, log_density, weight))
        bounds = repeat(None) if at_least is None else torch.split(at_least, states)
        for block, density, share, bound in zip(*parts, bounds, strict=False):
            values = sweep.forward(block.flatten(0, 1), parameters).view(-1, number)
            counted = (values if bound is None else torch.maximum(values, bound)) - density
            all_values.append(counted)
            slope = share * counted.softmax(1)
            slope = slope if bound is None else slope * (values > bound)
            sweep.backward(slope.view(-1, 1), parameters, gradients, adds=True)
        ctx.save_for_backward(*gradients)
        return (weight * torch.cat(all_values).logsumexp(1, keepdim=True)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, None, *(gradient * each for each in ctx.saved_tensors)
