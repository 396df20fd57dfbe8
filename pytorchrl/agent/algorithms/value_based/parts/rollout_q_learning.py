"""Base class of Q-learning from rollouts, without a replay buffer."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryRollout, UpdatePlan
from pytorchrl.agent.algorithms.value_based.parts.discrete_q_learning import DiscreteQLearning
from pytorchrl.agent.explorers import Exploration, Explorer
from storages.transition import RET, VAL


class RolloutQLearning(DiscreteQLearning):
    """Q-learning whose targets are the returns of a rollout storage, which bootstrap on the largest action values.

    Args:
        explorer: exploration strategy; None takes epsilon-greedy in each environment.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}

    explorer: Explorer | None = None

    def build(self) -> None:
        """Make the Q-network, its target, and the target's maximum as the value function that storages ask for."""
        super().build()
        # The state of a recurrent network that acts is stored once.
        self.actor.add("value", _Largest(self.q_target), acts=self.q_target is not self.q)

    def make_explorer(self) -> Explorer:
        """Return the explorer, from the first step on: there is no replay buffer to fill."""
        return self.default_explorer() if self.explorer is None else self.explorer

    def update_plan(self) -> UpdatePlan:
        """Return an update phase per full rollout."""
        return EveryRollout()

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the target network's largest values as VAL."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q_target(view).best().mean}

    def target_value(self, rows: Rows) -> Value:
        """Return RET, the returns that the storage computed."""
        return ScalarValue(rows[RET])


class _Largest(QuickModule):
    """The maximum over actions of Q, (N, 1), as an actor's value function."""

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q = q

    def forward(self, view: View) -> Tensor:
        value: Tensor = self.q(view).best().mean
        return value
