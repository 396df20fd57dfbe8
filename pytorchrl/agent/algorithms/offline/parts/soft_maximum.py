"""Log-sum-exp of a critic's values over sampled actions, with a blockwise gradient for MLPs on the CPU.

Hidden units of thousands of rows do not fit into the processor's cache, and beyond the matrix products autograd spends
most of its time on moving them. States are therefore processed in blocks that fit, each forward and immediately
backward: an update of CQL takes two thirds of the time. Critics other than MLPs with ReLU or tanh, or on other devices,
use autograd.
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
from pytorchrl.agent.ops.dispatch import hooks_of

_ROWS_OF_A_BLOCK = 960
"""A megabyte for each layer of 256 units."""
_OF_ONE_LAYER = 2
"""Weight and bias."""


def weighted_soft_maximum(
    critic: Network,
    view: View,
    action: Tensor,
    log_density: Tensor,
    weight: Tensor,
    at_least: Tensor | None = None,
) -> Tensor:
    """Return the weighted sum () over rows of ``log(sum(exp(Q(s, a) - log p(a))))``, over sampled actions.

    Args:
        critic: of observations and actions; receives the gradient.
        view: of N rows.
        action: (N, M, A).
        log_density: (N, M), of each action under its proposal distribution.
        weight: (N, 1), of the rows.
        at_least: (N, M), lower bounds of values; None for no bounds.
    """
    number = action.shape[1]
    layers = None if any(hooks_of(critic)) else plain_layers(critic)
    if layers is None or len(layers.parameters) == _OF_ONE_LAYER or not torch.is_grad_enabled():
        values: Tensor = critic(Repeated(view, number), action.flatten(0, 1)).mean.view(-1, number)
        values = values if at_least is None else torch.maximum(values, at_least)
        return (weight * (values - log_density).logsumexp(1, keepdim=True)).sum()
    total: Tensor = _Blockwise.apply(  # type: ignore[no-untyped-call]
        layers.activation, view.features(critic.body), action, log_density, weight, at_least, *layers.parameters
    )
    return total


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        activation: PlainActivation,
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
        sweep = Sweep(parameters, activation)
        all_values = []
        parts = (torch.split(tensor, states) for tensor in (action, base, by_base, log_density, weight))
        bounds = repeat(None) if at_least is None else torch.split(at_least, states)
        for (block, common, by_common, density, share), bound in zip(zip(*parts, strict=True), bounds, strict=False):
            layers = [of_action, common, *above]
            values = sweep.forward(block.flatten(0, 1), layers).view(-1, number)
            counted = (values if bound is None else torch.maximum(values, bound)) - density
            all_values.append(counted)
            slope = share * counted.softmax(1)
            slope = slope if bound is None else slope * (values > bound)
            sweep.backward(slope.view(-1, 1), layers, [by_action, by_common, *gradients], adds=True)
        of_first = torch.cat([by_base.T @ features, by_action], dim=1)
        ctx.save_for_backward(of_first, by_base.sum(0), *gradients)
        return (weight * torch.cat(all_values).logsumexp(1, keepdim=True)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, None, None, None, *(gradient * each for each in ctx.saved_tensors)
