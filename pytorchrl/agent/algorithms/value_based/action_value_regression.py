"""The regression of the values of discrete actions to targets."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.heads.values import ActionValuesLayer
from pytorchrl.agent.actors.layers.quick_module import hooks_of
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.plain_layers import Sweep, plain_layers_of_action_values
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.transition import OBS


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
        self._q = q
        layers = None if with_graph else plain_layers_of_action_values(q)
        self._hooks = hooks_of(q)
        self._sweep = None
        if layers is not None:
            self._sweep, self._parameters = Sweep(*layers), layers.parameters
            memory = group.gradient_memory()
            self._gradients = {parameter: memory[parameter] for parameter in layers.parameters}

    @property
    def is_plain(self) -> bool:
        """Whether gradients are computed beside the loss, by calling this."""
        return self._sweep is not None and not any(self._hooks)

    @torch.no_grad()
    def __call__(self, target: ScalarValue, rows: Rows) -> ActionValueFit:
        """Compare the values of the actions taken with targets."""
        sweep, body, head = self._sweep, self._q.body, self._q.head
        assert sweep is not None
        assert isinstance(body, Body)
        assert isinstance(head, ActionValuesLayer)
        numbers = sweep.forward(body.extracted(rows[OBS]), self._parameters)
        threshold = head.huber_threshold
        value = ScalarValue(numbers.gather(1, rows.action), threshold)
        loss, errors = value.weighted_loss(rows.weight, target)
        difference = value.mean - target.mean
        slope = rows.weight * (difference if threshold is None else difference.clamp_(-threshold, threshold))
        sweep.backward(
            torch.zeros_like(numbers).scatter_(1, rows.action, slope),
            self._parameters,
            list(self._gradients.values()),
            adds=False,
        )
        return ActionValueFit(value, loss, errors, self._gradients)
