"""Regression of Q-values of discrete actions to targets, without autograd for MLPs."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads.values import ActionValuesLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.plain_layers import plain_layers_of_action_values
from pytorchrl.agent.algorithms.plain_network import PlainNetwork
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.ops.dispatch import hooks_of


class ActionValueFit(NamedTuple):
    """Result of a regression of Q-values to targets."""

    value: ScalarValue
    """Q-values of the actions taken, without gradients."""
    loss: Tensor
    """(): mean over rows with importance weights, without a gradient."""
    errors: Tensor
    """(N, 1): errors for priorities."""
    gradients: Mapping[Tensor, Tensor]
    """As :attr:`Losses.gradients`."""


class ActionValueRegression:
    """Regression of Q-values to targets whose gradient is computed together with the loss, without autograd.

    It is available for MLPs on the CPU with ReLU or tanh.

    Args:
        q: network of observations.
        group: that trains it.
        with_graph: always use autograd, for subclasses that change the loss.
    """

    def __init__(self, q: Network, group: Trained, *, with_graph: bool) -> None:
        self._head = q.head
        layers = None if with_graph else plain_layers_of_action_values(q)
        self._network = None if layers is None else PlainNetwork(q, layers, group)
        self._hooks = hooks_of(q)

    @property
    def is_plain(self) -> bool:
        """Whether the gradient can be computed without autograd, by calling this object."""
        return self._network is not None and not any(self._hooks)

    @torch.no_grad()
    def __call__(self, target: ScalarValue, rows: Rows) -> ActionValueFit:
        """Return loss, errors and gradients of the actions' values against targets."""
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
