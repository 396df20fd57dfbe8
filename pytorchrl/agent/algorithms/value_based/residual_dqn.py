"""Residual gradient Q-learning: gradients also through the bootstrapped target, without a target network."""

from typing import ClassVar

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue, Value
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import UnitInterval


class ResidualDQN(DQN):
    """Baird, "Residual Algorithms: Reinforcement Learning with Function Approximation" (ICML 1995).

    Targets are computed by the online network, and gradients also pass through the next value. There is no target
    network, and so no ``double``, ``polyak`` or ``target_update_interval``.

    Args:
        grad_scale: factor of the gradient through the next value: 1 for the residual gradient, 0 for the semi-gradient
            of Q-learning, in between for a residual algorithm (phi in the paper).
    """

    double: ClassVar[bool] = False  # type: ignore[misc]
    polyak: ClassVar[float] = 0.0  # type: ignore[misc]
    target_update_interval: ClassVar[int] = 1  # type: ignore[misc]
    grad_scale: UnitInterval = 1.0

    def build(self) -> None:
        """Make the Q-network, which is its own target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q)
        self.q_target: Network = self.q

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the actions' values against targets, with gradients in both."""
        target = self.target_value(rows)
        value: Value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: self.reduced(loss, rows)}, metrics, rows.per_row(errors))

    def target_value(self, rows: Rows) -> Value:
        """Return ``r + gamma * max_a Q(s', a)``, with the gradient of the maximum scaled by ``grad_scale``."""
        values: ActionValues = self.q(rows.next)
        value = values.of(values.greedy()).mean
        scaled = value.detach().lerp(value, self.grad_scale)
        return ScalarValue(scaled).backup(rows.reward, rows.discount)
