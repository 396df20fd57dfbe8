"""Forward passes of an ensemble by batched matrix products, which have less overhead than one network at a time."""

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.ops.dispatch import hooks_of
from pytorchrl.agent.ops.products import stacked_linear


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
        """Stack the present weights of networks; None where only calls of their modules compute what these do."""
        networks = list(networks)
        layers = [found for found in map(_linear_layers, networks) if found is not None]
        joint = networks[0].joint
        if joint is None or len(layers) < len(networks):
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
    """Return the layers of a network, all linear with a bias; None if it has others, hooks, or methods of a user's."""
    body, joint, head = network.body, network.joint, network.head
    is_known = type(network) is Network and type(body) is Body and type(joint) is MLP
    if not is_known or type(head).forward is not OutputLayer.forward or any(hooks_of(network)):
        return None
    assert isinstance(joint, MLP)
    hidden, last = joint.plain_layers, head.layer
    if hidden is None or type(last) is not nn.Linear or last.bias is None or any(True for _ in body.parameters()):
        return None
    return [*hidden, last]
