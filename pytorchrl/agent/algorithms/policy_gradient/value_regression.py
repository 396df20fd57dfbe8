"""The regression of a value function to returns."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.layers.quick_module import hooks_of
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.plain_layers import Sweep, plain_layers_of_numbers
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.transition import OBS


class ValueFit(NamedTuple):
    """How well a value function fits."""

    loss: Tensor
    """()."""
    gradients: Mapping[Tensor, Tensor]
    """The value function's, as :attr:`Losses.gradients`; none where they are those of the loss."""


class ValueRegression:
    """A value function whose squared distance to targets is to become small.

    Where it is no more than fully connected layers on the CPU, with ReLUs or tangents, its gradient is computed at
    once, in the same memory, and without autograd, in half of the time: 90 instead of 180 us for 128 rows and two
    layers of 64 units. Else the loss has gradients.

    Args:
        value: of observations.
        group: that trains it, and others perhaps.
        with_graph: let the loss have gradients in any case, as where a policy shares the value function's body.
    """

    def __init__(self, value: Network, group: Trained, *, with_graph: bool) -> None:
        self._value = value
        layers = None if with_graph else plain_layers_of_numbers(value)
        self._hooks = hooks_of(value)
        self._sweep = None
        if layers is not None:
            self._sweep, self._parameters = Sweep(*layers), layers.parameters
            memory = group.gradient_memory()
            self._gradients = {parameter: memory[parameter] for parameter in layers.parameters}

    def __call__(self, target: Tensor, rows: Rows, coefficient: float = 1.0) -> ValueFit:
        """Half the mean squared distance of the rows' values to targets (N, 1).

        Args:
            target: what values are to become, without gradients.
            rows: of a batch.
            coefficient: weight of the loss, which the gradients beside it are multiplied by, and the loss itself not.
        """
        if self._sweep is not None and not any(self._hooks):
            return self._fit_of_plain(self._sweep, target, rows, coefficient)
        return ValueFit(0.5 * rows.mean((self._value(rows.now) - target).square()), {})

    @torch.no_grad()
    def _fit_of_plain(self, sweep: Sweep, target: Tensor, rows: Rows, coefficient: float) -> ValueFit:
        body = self._value.body
        assert isinstance(body, Body)
        difference = sweep.forward(body.extracted(rows[OBS]), self._parameters) - target
        slope = rows.share * difference
        loss = 0.5 * (slope * difference).sum()
        sweep.backward(slope.mul_(coefficient), self._parameters, list(self._gradients.values()), adds=False)
        return ValueFit(loss, self._gradients)
