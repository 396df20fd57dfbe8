"""n-step Q-learning: DQN on the n-step returns of new rollouts, without a replay buffer."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from torch import Tensor, nn

from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.algorithms.value_based.parts.discrete_q_learning import DiscreteQLearning
from pytorchrl.agent.explorers import Exploration, Explorer
from storages.component.hyper_parameters import Count, Positive, UnitInterval
from storages.storage import Storage
from storages.transition import RET, VAL, Batch


class NStepQLearning(DiscreteQLearning):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), algorithm S2.

    The rollout holds a segment of each environment. Returns bootstrap on the target network's largest value where the
    segment ends or the episode is truncated. Losses are summed over the steps of the rollout, as the paper's workers
    accumulate their gradients.

    Args:
        explorer: exploration strategy; None takes epsilon-greedy in each environment.
        target_update_interval_steps: environment transitions, over all environments, between updates of the target
            network; 40,000 in the paper.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}

    explorer: Explorer | None = None
    polyak: UnitInterval = 0.0
    target_update_interval_steps: Count = 1_000
    max_grad_norm: Positive | None = None

    def build(self) -> None:
        """Make the Q-network, its target, and the target's maximum as the value function that storages ask for."""
        super().build()
        self.actor.add("value", _Largest(self.q_target), acts=True)

    def target_network(self) -> Network:
        """Return a target network that is updated every ``target_update_interval_steps`` transitions."""
        target: Network = self.target(self.q, every_steps="target_update_interval_steps")
        return target

    def make_explorer(self) -> Explorer:
        """Return the explorer, from the first step on: there is no replay buffer to fill."""
        return self.default_explorer() if self.explorer is None else self.explorer

    def update_plan(self) -> UpdatePlan:
        """Return an update phase per full rollout."""
        return EveryRollout()

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the whole rollout as one batch."""
        return source.generate_batches(1, None)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the target network's largest values as VAL."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q_target(view).best().mean}

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the actions' values against n-step returns, summed over all steps."""
        mean = super().losses(rows)
        loss = mean.of[self.trained] * rows.count
        return Losses({self.trained: loss}, mean.metrics | {"loss": loss.detach()})

    def target_value(self, rows: Rows) -> Value:
        """Return RET: the segment's discounted rewards and the bootstrapped value at its end."""
        return ScalarValue(rows[RET])


class _Largest(QuickModule):
    """The maximum over actions of Q, (N, 1), as an actor's value function."""

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q = q

    def forward(self, view: View) -> Tensor:
        value: Tensor = self.q(view).best().mean
        return value
