"""Base class of algorithms that learn a Q-network."""

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
    """Regression of a Q-network to bootstrapped targets, usually of a target network.

    Args:
        lr: learning rate.
        polyak: weight that the target network keeps in each of its updates; 0 copies the online network.
        max_grad_norm: norm that gradients are clipped to; None does not clip.
    """

    lr: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    max_grad_norm: Positive | None = 10.0

    @abstractmethod
    def head(self) -> Head:
        """Return the head of the Q-network."""

    def build(self) -> None:
        """Make the Q-network and its target."""
        self.q = self.make_network()
        self.trained = self.train("q", self.q, *self.networks_beside(), max_grad_norm="max_grad_norm")
        with_graph = self.overrides(QLearning.losses, QLearning.losses_to, QLearning.losses_of)
        self.regression = ActionValueRegression(self.q, self.trained, with_graph=with_graph)
        self.q_target = self.target_network()

    def make_network(self) -> Network:
        """Make the Q-network, of observations only."""
        return self.actor.make("q", self.head(), acts=True)

    def networks_beside(self) -> tuple[Network, ...]:
        """Return further networks to train in the same group as the Q-network."""
        return ()

    @abstractmethod
    def target_network(self) -> Network:
        """Return the network that targets bootstrap on."""

    def policy(self, view: View, exploration: Exploration) -> ActionValueFunction:
        """Return the values of all actions."""
        values: ActionValueFunction = self.q(view)
        return values

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the actions' values against their targets."""
        with torch.no_grad():
            target = self.target_value(rows)
        return self.losses_to(rows, target)

    def losses_to(self, rows: Rows, target: Value) -> Losses:
        """Return the loss and errors of the actions' values for given targets."""
        if not self.regression.is_plain:
            return self.losses_of(self.q(rows.now), rows, target)
        assert isinstance(target, ScalarValue)
        fit = self.regression(target, rows)
        metrics = {"loss": fit.loss, "q_value": rows.mean(fit.value.mean)}
        return Losses({self.trained: fit.loss}, metrics, rows.per_row(fit.errors), gradients=fit.gradients)

    def losses_of(self, values: Any, rows: Rows, target: Value) -> Losses:
        """As :meth:`losses_to`, given the values of all actions."""
        value = values.of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    @abstractmethod
    def target_value(self, rows: Rows) -> Value:
        """Return the targets for the values of the actions taken."""
