"""What algorithms have in common that learn one network of action values."""

from abc import abstractmethod
from typing import Any

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.action_value_regression import ActionValueRegression
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive, UnitInterval


class QLearning(Algorithm):
    """Moves the values of actions to targets, which a slow copy of the network is asked for.

    Args:
        lr: learning rate.
        polyak: how much of the target network stays at each of its updates; 0 copies the online network.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
    """

    lr: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    max_grad_norm: Positive | None = 10.0

    @abstractmethod
    def head(self) -> Head:
        """How action values are represented."""

    def build(self) -> None:
        """One network and its target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q, *self.networks_beside(), max_grad_norm="max_grad_norm")
        with_graph = self.redefines(QLearning.losses, QLearning.losses_to, QLearning.losses_of)
        self.regression = ActionValueRegression(self.q, self.trained, with_graph=with_graph)
        self.q_target = self.target_network()

    def networks_beside(self) -> tuple[Network, ...]:
        """Networks that are trained together with that of the values."""
        return ()

    @abstractmethod
    def target_network(self) -> Network:
        """What targets take values from."""

    def policy(self, view: View, exploration: Exploration) -> ActionValueFunction:
        """The values of all actions."""
        values: ActionValueFunction = self.q(view)
        return values

    def losses(self, rows: Rows) -> Losses:
        """The distance of the actions' values to their targets."""
        with torch.no_grad():
            target = self.target_value(rows)
        return self.losses_to(rows, target)

    def losses_to(self, rows: Rows, target: Value) -> Losses:
        """The losses and errors of the actions' values for a target of each."""
        if not self.regression.is_plain:
            return self.losses_of(self.q(rows.now), rows, target)
        assert isinstance(target, ScalarValue)
        fit = self.regression(target, rows)
        metrics = {"loss": fit.loss, "q_value": rows.mean(fit.value.mean)}
        return Losses({self.trained: fit.loss}, metrics, rows.per_row(fit.errors), gradients=fit.gradients)

    def losses_of(self, values: Any, rows: Rows, target: Value) -> Losses:
        """As :meth:`losses_to`, of the values of all actions."""
        value = values.of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    @abstractmethod
    def target_value(self, rows: Rows) -> Value:
        """What the values of the actions taken are to become."""
