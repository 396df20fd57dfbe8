"""The regression of the values of discrete actions to targets."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads.values import ActionValuesLayer
from pytorchrl.agent.actors.layers.quick_module import hooks_of
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.plain_layers import plain_layers_of_action_values
from pytorchrl.agent.algorithms.plain_network import PlainNetwork
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained


class ActionValueFit(NamedTuple):
    """How well the actions taken are valued."""

    value: ScalarValue
    """Of the actions taken, without gradients."""
    loss: Tensor
    """(): a mean over rows with importance weights, without a gradient."""
    errors: Tensor
    """(N, 1)."""
    gradients: Mapping[Tensor, Tensor]
    """As :attr:`Losses.gradients`."""


class ActionValueRegression:
    """Values of discrete actions that are to become targets, where their gradient can be computed beside the loss.

    That is so for networks that are no more than fully connected layers on the CPU, with ReLUs or tangents.

    Args:
        q: of observations.
        group: that trains it.
        with_graph: leave it to autograd in any case, for those who make another loss of it.
    """

    def __init__(self, q: Network, group: Trained, *, with_graph: bool) -> None:
        self._head = q.head
        layers = None if with_graph else plain_layers_of_action_values(q)
        self._network = None if layers is None else PlainNetwork(q, layers, group)
        self._hooks = hooks_of(q)

    @property
    def is_plain(self) -> bool:
        """Whether gradients are computed beside the loss, by calling this."""
        return self._network is not None and not any(self._hooks)

    @torch.no_grad()
    def __call__(self, target: ScalarValue, rows: Rows) -> ActionValueFit:
        """Compare the values of the actions taken with targets."""
        assert self._network is not None
        assert isinstance(self._head, ActionValuesLayer)
        numbers = self._network.forward(rows)
        threshold = self._head.huber_threshold
        value = ScalarValue(numbers.gather(1, rows.action), threshold)
        loss, errors = value.weighted_loss(rows.weight, target)
        difference = value.mean - target.mean
        slope = rows.weight * (difference if threshold is None else difference.clamp_(-threshold, threshold))
        gradients = self._network.backward(torch.zeros_like(numbers).scatter_(1, rows.action, slope))
        return ActionValueFit(value, loss, errors, gradients)
