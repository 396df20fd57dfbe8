"""DQN: values of discrete actions, learnt from replayed transitions."""

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from storages.hyper_parameters import Count, NonNegativeOrSchedule, Positive, UnitInterval, UnitIntervalOrSchedule
from storages.schedule import LinearSchedule


class DQN(OffPolicyAlgorithm):
    """Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015).

    Args:
        lr: learning rate.
        epsilon: probability of a random action.
        double: choose the next action by the online network and value it by the target network (van Hasselt et al.,
            arXiv 1509.06461).
        polyak: how much of the target network stays at each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
    """

    actions = "discrete"

    lr: NonNegativeOrSchedule = 1e-3
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    update_every: Count = 4
    mini_batch_size: Count = 128
    double: bool = True
    polyak: UnitInterval = 0.99
    target_update_interval: Count = 1
    max_grad_norm: Positive | None = 10.0

    def head(self) -> Head:
        """How action values are represented."""
        return Values()

    def build(self) -> None:
        """One network and its target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q, max_grad_norm="max_grad_norm")
        self.q_target = self.target(self.q, every="target_update_interval")

    def default_explorer(self) -> Explorer:
        """A random action with probability epsilon."""
        return EpsilonGreedy(self.epsilon)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """The values of all actions."""
        values: ActionValues = self.q(view)
        return values

    def losses(self, rows: Rows) -> Losses:
        """The distance of the actions' values to their targets."""
        with torch.no_grad():
            target = self.target_value(rows)
        value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def target_value(self, rows: Rows) -> Value:
        """What the values of the actions taken are to become: reward plus the discounted value of what followed."""
        return self.next_value(rows).backup(rows.reward, rows.discount)

    def next_value(self, rows: Rows) -> Value:
        """The target network's values of the best next actions."""
        next_values: ActionValues = self.q_target(rows.next)
        chooser = self.q(rows.next) if self.double else next_values
        return next_values.of(chooser.greedy())
