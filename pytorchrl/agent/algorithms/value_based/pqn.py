"""PQN: Q-learning on the lambda returns of many environments, without replay buffer and target network."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from torch import Tensor

from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.algorithms.value_based.largest_value import LargestValue
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, Positive, UnitIntervalOrSchedule
from storages.component.schedule import LinearSchedule
from storages.storage import Storage
from storages.transition import RET, VAL, Batch


class PQN(Algorithm):
    """Gallici et al., "Simplifying Deep Temporal Difference Learning" (arXiv 2407.04811), algorithm 1.

    Normalised layers take the place of a target network: give the actor ``layer_norm=True``. Returns are computed once
    for each rollout, from the values with which its actions were chosen, and bootstrap on the largest of the next step.

    Args:
        num_epochs: passes over a rollout.
        num_mini_batch: batches of an epoch.
        explorer: exploration strategy; None takes epsilon-greedy in each environment.
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
        lr: learning rate.
    """

    actions = "discrete"
    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}
    unchangeable = frozenset({"huber_threshold"})

    num_epochs: Count = 4
    num_mini_batch: Count = 4
    explorer: Explorer | None = None
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.5)
    huber_threshold: Positive | None = None
    lr: NonNegativeOrSchedule = 2.5e-4
    max_grad_norm: Positive | None = 10.0

    def build(self) -> None:
        """Make the Q-network, and its maximum as the value function that storages ask for."""
        self.q = self.actor.make("q", Values(self.huber_threshold), acts=True)
        self.trained = self.train("q", self.q)
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

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the largest values as VAL."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q(view).best().mean}
