"""Batched passes of critics: over many actions of each observation, and of a whole ensemble at once."""

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.heads.values import ActionValueLayer
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Observations, Repeated, View
from pytorchrl.agent.ops.dispatch import hooks_of
from pytorchrl.agent.ops.layers import are_plain
from pytorchrl.agent.ops.products import is_linear, stacked_linear
from pytorchrl.agent.ops.soft_maximum import weighted_soft_maximum, weighted_soft_maximum_of_mlp


def soft_maximum_of_critic(
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
    joint, parameters = critic.joint, _parameters_of_plain(critic)
    if isinstance(joint, MLP) and parameters is not None:
        given = view.features(critic.body), action, log_density, weight, at_least
        quick = weighted_soft_maximum_of_mlp(parameters, joint.activation, *given)
        if quick is not None:
            return quick
    number = action.shape[1]
    values: Tensor = critic(Repeated(view, number), action.flatten(0, 1)).mean.view(-1, number)
    return weighted_soft_maximum(values, log_density, weight, at_least)


def _parameters_of_plain(critic: Network) -> list[Tensor] | None:
    """Return weight and bias of each layer; None if the critic computes more than these layers."""
    joint, head = critic.joint, critic.head
    if not (isinstance(joint, MLP) and are_plain([critic], Network) and are_plain([joint], MLP)):
        return None
    hidden = joint.plain_layers
    if hidden is None or not are_plain([head], ActionValueLayer):
        return None
    layers: list[Any] = [*hidden, head.layer]
    if not are_plain(layers) or any(layer.bias is None for layer in layers):
        return None
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]


class StackedNetworks:
    """Copies of the weights of networks of observations and actions, for several passes without gradients.

    They are outdated after the next change of the networks.

    Args:
        first: one of the networks; what it computes before its layers is the same in all.
        layers: of each network, from features and actions to numbers.
        activation: after each layer but the last, "relu" or "tanh".
    """

    def __init__(self, first: Network, layers: list[list[nn.Linear]], activation: str) -> None:
        self._first = first
        positions = list(zip(*layers, strict=True))
        self._weights = [torch.stack([layer.weight.detach().T for layer in each]) for each in positions]
        self._biases = [torch.stack([layer.bias.detach()[None] for layer in each]) for each in positions]
        self._activate_ = torch.relu_ if activation == "relu" else torch.tanh_

    @classmethod
    def of(cls, networks: Iterable[Network]) -> Self | None:
        """Stack the present weights of networks; None if their modules have to be called."""
        networks = list(networks)
        layers = [found for found in map(_linear_layers, networks) if found is not None]
        joint = networks[0].joint
        if not isinstance(joint, MLP) or len(layers) < len(networks):
            return None
        return cls(networks[0], layers, joint.activation)

    @torch.no_grad()
    def numbers(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the numbers (M, N, numbers) of the last layers of M networks, before the heads convert them.

        Args:
            obs: (M * N, *obs), the rows of the first network first.
            action: (M * N, A).
        """
        inputs = self._first.inputs(Observations(obs), action)
        units = inputs.view(len(self._weights[0]), -1, inputs.shape[1])
        *hidden, last = zip(self._weights, self._biases, strict=True)
        for weight, bias in hidden:
            units = self._activate_(stacked_linear(units, weight, bias))
        return stacked_linear(units, *last)


def _linear_layers(network: Network) -> list[nn.Linear] | None:
    """Return the layers of a network, if all are plain linear ones with a bias; else None."""
    body, joint, head = network.body, network.joint, network.head
    is_known = type(network) is Network and type(body) is Body and type(joint) is MLP
    if not is_known or type(head).forward is not OutputLayer.forward or any(hooks_of(network)):
        return None
    assert isinstance(joint, MLP)
    hidden, last = joint.plain_layers, head.layer
    if hidden is None or not is_linear(last) or last.bias is None or any(True for _ in body.parameters()):
        return None
    return [*hidden, last]
