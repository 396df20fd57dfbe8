"""DQN: values of discrete actions, learnt from replayed transitions."""

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.outputs import ActionValues
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
        """The distance to reward plus the discounted value of what followed."""
        with torch.no_grad():
            next_values: ActionValues = self.q_target(rows.next)
            chosen = (self.q(rows.next) if self.double else next_values).greedy()
            target = next_values.of(chosen).backup(rows.reward, rows.discount)
        value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))
