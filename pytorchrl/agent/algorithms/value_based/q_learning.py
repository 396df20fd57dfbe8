"""What algorithms have in common that learn one network of action values from replayed transitions."""

from abc import abstractmethod

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.hyper_parameters import Count, NonNegativeOrSchedule, Positive, UnitInterval


class QLearning(OffPolicyAlgorithm):
    """Moves the values of actions to reward plus discounted target values of what followed.

    Args:
        lr: learning rate.
        polyak: how much of the target network stays at each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
    """

    lr: NonNegativeOrSchedule = 1e-3
    mini_batch_size: Count = 128
    polyak: UnitInterval = 0.99
    target_update_interval: Count = 1
    max_grad_norm: Positive | None = 10.0

    @abstractmethod
    def head(self) -> Head:
        """How action values are represented."""

    def build(self) -> None:
        """One network and its target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q, max_grad_norm="max_grad_norm")
        self.q_target = self.target_network()

    def target_network(self) -> Network:
        """What targets take values from."""
        target: Network = self.target(self.q, every="target_update_interval")
        return target

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
        value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def target_value(self, rows: Rows) -> Value:
        """What the values of the actions taken are to become: reward plus the discounted value of what followed."""
        return self.next_value(rows).backup(rows.reward, rows.discount)

    def next_value(self, rows: Rows) -> Value:
        """The target network's values of the actions that it finds best."""
        values: ActionValueFunction = self.q_target(rows.next)
        return values.best()
