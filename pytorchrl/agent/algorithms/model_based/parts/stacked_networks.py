"""Forward passes of an ensemble by batched matrix products, which have less overhead than one network at a time."""

from typing import Self

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.layers.output_layer import OutputLayer
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.algorithms.plain_layers import linear_layers
from pytorchrl.agent.ops.products import stacked_linear


class StackedNetworks:
    """Copies of the weights of networks of observations and actions, with one more dimension for the network.

    They are outdated after the next update of the networks.

    Args:
        encoder: from observations to the features that all networks have in common.
        layers: of each network, from features and actions to numbers.
        activation: after each layer but the last, "relu" or "tanh".
    """

    def __init__(self, encoder: Body, layers: list[list[nn.Linear]], activation: str) -> None:
        self._encoder = encoder
        positions = list(zip(*layers, strict=True))
        self._weights = [torch.stack([layer.weight.detach().T for layer in each]) for each in positions]
        self._biases = [torch.stack([layer.bias.detach()[None] for layer in each]) for each in positions]
        self._activate_ = torch.relu_ if activation == "relu" else torch.tanh_

    @classmethod
    def of(cls, ensemble: Ensemble) -> Self | None:
        """Stack the networks of an ensemble; None if they have other layers."""
        layers, activation = [], ""
        for network in ensemble:
            body, joint, head = network.body, network.joint, network.head
            if type(joint) is not MLP or type(body) is not Body or not isinstance(head, OutputLayer):
                return None
            found = linear_layers(body, joint, head.layer)
            if found is None:
                return None
            activation = joint.activation
            layers.append(found)
        encoder = ensemble[0].body
        assert isinstance(encoder, Body)
        return cls(encoder, layers, activation)

    def numbers(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the numbers (M, N, numbers) of the last layers of M networks, before the heads convert them.

        Args:
            obs: (M * N, *obs), the rows of the first network first.
            action: (M * N, A).
        """
        inputs = torch.cat([self._encoder(obs), action], dim=1)
        units = inputs.view(len(self._weights[0]), -1, inputs.shape[1])
        *hidden, last = zip(self._weights, self._biases, strict=True)
        for weight, bias in hidden:
            units = self._activate_(stacked_linear(units, weight, bias))
        return stacked_linear(units, *last)
