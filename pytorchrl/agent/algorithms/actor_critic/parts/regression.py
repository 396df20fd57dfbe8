"""Regression of critics to TD targets, without autograd for MLPs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.parts.critics import critic_loss_of
from pytorchrl.agent.algorithms.plain_layers import Sweep, plain_layers
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.ops.dispatch import hooks_of


class Fit(NamedTuple):
    """Result of a regression of critics to targets."""

    loss: Tensor
    """(): sum of the critics' losses, each a mean over rows with importance weights."""
    errors: Tensor
    """Mean of the critics' errors, in the shape of the batch's rewards, for priorities."""
    values: Sequence[ScalarValue]
    """Q-values of the actions taken by each critic, without gradients."""
    gradients: Mapping[Tensor, Tensor]
    """The critics', as :attr:`Losses.gradients`; empty if autograd computes them from the loss."""


class Regression:
    """Regression of critics to TD targets.

    For MLPs on the CPU with ReLU or tanh and squared errors, each critic's gradient is computed together with its loss,
    in reused memory and without autograd, which takes a twelfth less time per TD3 update. Else autograd computes it.

    Args:
        critics: of observations and actions.
        group: that trains only the critics.
        with_graph: always use autograd, for subclasses that change the loss.
    """

    def __init__(self, critics: Ensemble, group: Trained, *, with_graph: bool) -> None:
        self._critics = critics
        layers = [each for each in map(plain_layers, critics) if each is not None]
        is_squared = all(getattr(critic.head, "huber_threshold", 0) is None for critic in critics)
        is_plain = is_squared and len(layers) == len(critics) and not with_graph
        self._sweep = Sweep(*layers[0]) if is_plain else None
        self._hooks = hooks_of(critics)
        self._gradients = group.gradient_memory()
        self._parameters = [each.parameters for each in layers]
        self._gradients_of = [[self._gradients[parameter] for parameter in each] for each in self._parameters]

    @property
    def is_plain(self) -> bool:
        """Whether gradients are computed without autograd."""
        return self._sweep is not None and not any(self._hooks)

    def __call__(self, target: ScalarValue, rows: Rows) -> Fit:
        """Return losses and errors of the actions' values against targets, which have no gradients."""
        if self.is_plain:
            assert self._sweep is not None
            return self._fit_of_plain(self._sweep, target.mean, rows)
        values = self._critics(rows.now, rows.action)
        loss, errors = critic_loss_of(values, target, rows)
        return Fit(loss, errors, [value.detach() for value in values], {})

    @torch.no_grad()
    def _fit_of_plain(self, sweep: Sweep, wanted: Tensor, rows: Rows) -> Fit:
        weight = rows.weight
        values, differences = [], []
        for critic, parameters, gradients in zip(self._critics, self._parameters, self._gradients_of, strict=True):
            value = sweep.forward(critic.inputs(rows.now, rows.action), parameters)
            difference = value - wanted
            sweep.backward(weight * difference, parameters, gradients, adds=False)
            values.append(ScalarValue(value, None))
            differences.append(difference)
        errors = torch.stack(differences)
        loss = 0.5 * (weight * errors.square()).sum()
        return Fit(loss, rows.per_row(errors.abs_().mean(0)), values, self._gradients)
