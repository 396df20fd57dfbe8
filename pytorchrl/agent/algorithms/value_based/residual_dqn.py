"""Residual gradient Q-learning: the gradient of the whole error, without a target network."""

from typing import ClassVar

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import UnitInterval


class ResidualDQN(DQN):
    """Baird, "Residual Algorithms: Reinforcement Learning with Function Approximation" (ICML 1995).

    Targets are made of the network that learns, and gradients pass through the largest next value too. There is no
    target network, and so no ``double``, ``polyak`` or ``target_update_interval``.

    Args:
        grad_scale: what the gradient through the next value is multiplied by: 1 for the residual gradient, 0 for that
            of Q-learning, and between them for a residual algorithm (there called phi).
    """

    double: ClassVar[bool] = False  # type: ignore[misc]
    polyak: ClassVar[float] = 0.0  # type: ignore[misc]
    target_update_interval: ClassVar[int] = 1  # type: ignore[misc]
    grad_scale: UnitInterval = 1.0

    def target_network(self) -> Network:
        """The network itself."""
        return self.q

    def losses(self, rows: Rows) -> Losses:
        """The distance of the actions' values to their targets, both of which learn."""
        return self.losses_to(rows, self.target_value(rows))

    def next_value(self, rows: Rows) -> Value:
        """The largest next values, with a part of their gradient."""
        value = super().next_value(rows).mean
        return ScalarValue(value.detach().lerp(value, self.grad_scale))
