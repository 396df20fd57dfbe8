"""n-step Q-learning: values of discrete actions, learnt from segments that the present policy has just made."""

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

    The storage's rollout is a segment of each environment, whose returns lean on the largest value of the target
    network where the segment ends or a limit cut the episode. Losses of steps are summed over the rollout, as the
    paper's workers add up their gradients.

    Args:
        explorer: how to try something new; None takes a random action with probability epsilon, in each environment.
        target_update_interval_steps: environment transitions, of all environments together, between updates of the
            target network; the paper has 40,000.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", log_probs=False)}

    explorer: Explorer | None = None
    polyak: UnitInterval = 0.0
    target_update_interval_steps: Count = 1_000
    max_grad_norm: Positive | None = None

    def build(self) -> None:
        """One network, its target, and the target's largest values, which storages ask for."""
        super().build()
        self.actor.add("value", _Largest(self.q_target), acts=True)

    def target_network(self) -> Network:
        """A copy that follows every so many steps of the environments."""
        target: Network = self.target(self.q, every_steps="target_update_interval_steps")
        return target

    def make_explorer(self) -> Explorer:
        """From the first step on, for there is no memory to fill before."""
        return self.default_explorer() if self.explorer is None else self.explorer

    def update_plan(self) -> UpdatePlan:
        """When the rollout is full."""
        return EveryRollout()

    def batches(self, source: Storage) -> Iterator[Batch]:
        """The whole rollout, once."""
        return source.generate_batches(1, None)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Actions, and the target network's largest values."""
        action, fields = super().act(view, exploration)
        return action, fields if exploration.deterministic else {**fields, VAL: self.q_target(view).best().mean}

    def losses(self, rows: Rows) -> Losses:
        """The sum over all steps of the distance of the actions' values to the returns."""
        mean = super().losses(rows)
        loss = mean.of[self.trained] * rows.count
        return Losses({self.trained: loss}, mean.metrics | {"loss": loss.detach()})

    def target_value(self, rows: Rows) -> Value:
        """RET, the rest of the segment's discounted rewards, and the target network's value of what followed."""
        return ScalarValue(rows[RET])


class _Largest(QuickModule):
    """The value of the best action, (N, 1), as an actor's value function."""

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q = q

    def forward(self, view: View) -> Tensor:
        value: Tensor = self.q(view).best().mean
        return value
