"""Q-learning on the returns of new rollouts, without a replay buffer.

NStepQLearning: DQN on the n-step returns of new rollouts, without a replay buffer.
PQN: Q-learning on the lambda returns of many environments, without replay buffer and target network.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from torch import Tensor, nn

from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from storages.component.hyper_parameters import (
    Count,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import LinearSchedule
from storages.storage import Storage
from storages.transition import RET, VAL, Batch


class RolloutQLearning(Algorithm):
    """Base class of Q-learning on the returns that a storage computes for each rollout.

    Returns bootstrap on the largest value of a network, which is the first one or its target.

    Args:
        explorer: exploration strategy; None takes epsilon-greedy in each environment.
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
        lr: learning rate.
    """

    actions = "discrete"
    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}
    unchangeable = frozenset({"huber_threshold"})

    explorer: Explorer | None = None
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0
    lr: NonNegativeOrSchedule = 1e-3

    def update_plan(self) -> UpdatePlan:
        """Return an update phase per full rollout."""
        return EveryRollout()

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """Return the values of all actions."""
        values: ActionValues = self.q(view)
        return values

    def make_explorer(self) -> Explorer:
        """Return the explorer, from the first step on: there is no replay buffer to fill."""
        return EpsilonGreedy(self.epsilon) if self.explorer is None else self.explorer

    def _make_q_network(self) -> None:
        self.q = self.actor.make("q", Values(self.huber_threshold), acts=True)
        self.trained = self.train("q", self.q)


class NStepQLearning(RolloutQLearning):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), algorithm S2.

    The rollout holds a segment of each environment. Returns bootstrap on the target network's largest value where the
    segment ends or the episode is truncated. Losses are summed over the steps of the rollout, as the paper's workers
    accumulate their gradients.

    Args:
        target_update_interval_steps: environment transitions, over all environments, between updates of the target
            network; 40,000 in the paper.
        polyak: weight that the target network keeps in each of its updates; 0 copies the online network.
    """

    target_update_interval_steps: Count = 1_000
    polyak: UnitInterval = 0.0

    def build(self) -> None:
        """Make the Q-network, its target, and the target's maximum as the value function that storages ask for."""
        self._make_q_network()
        self.q_target: Network = self.target(self.q, every_steps="target_update_interval_steps")
        self.actor.add("value", LargestValue(self.q_target), acts=True)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of ``Q(s, a)`` against the storage's n-step returns, summed over all steps."""
        value: ScalarValue = self.q(rows.now).of(rows.action)
        mean_loss, _ = value.weighted_loss(rows.weight, ScalarValue(rows[RET]))
        loss = mean_loss * rows.count
        return Losses({self.trained: loss}, {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())})

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the whole rollout as one batch."""
        return source.generate_batches(1, None)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the target network's largest values as VAL."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q_target(view).best().mean}


class PQN(RolloutQLearning):
    """Gallici et al., "Simplifying Deep Temporal Difference Learning" (arXiv 2407.04811), algorithm 1.

    Normalised layers take the place of a target network: give the actor ``layer_norm=True``. Returns are computed once
    for each rollout, from the values with which its actions were chosen, and bootstrap on the largest of the next step.

    Args:
        num_epochs: passes over a rollout.
        num_mini_batch: batches of an epoch.
    """

    num_epochs: Count = 4
    num_mini_batch: Count = 4
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.5)
    huber_threshold: Positive | None = None
    lr: NonNegativeOrSchedule = 2.5e-4
    max_grad_norm: Positive | None = 10.0

    def build(self) -> None:
        """Make the Q-network, and its maximum as the value function that storages ask for."""
        self._make_q_network()
        # The state of a recurrent network that acts is stored once.
        self.actor.add("value", LargestValue(self.q), acts=False)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of ``Q(s, a)`` against the storage's lambda returns."""
        value: ScalarValue = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, ScalarValue(rows[RET]))
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the batches of all epochs."""
        return source.generate_batches(self.num_mini_batch, None, self.num_epochs)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the largest values as VAL."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q(view).best().mean}


class LargestValue(nn.Module):
    """``max_a Q(s, a)``, (N, 1): the module ``actor.value`` that storages of rollouts ask for.

    Args:
        q: network of the values of all actions.
    """

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q = q

    def forward(self, view: View) -> Tensor:
        """Return the largest values (N, 1) of a view."""
        values: ActionValues = self.q(view)
        return values.best().mean
