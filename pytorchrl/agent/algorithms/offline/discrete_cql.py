"""DiscreteCQL: DQN that learns the values of actions which the data does not take to be low."""

from typing import Any

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import NonNegative


class DiscreteCQL(DQN):
    """Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), of all actions.

    Args:
        conservative_weight: of the gap between the log-sum-exp of all actions' values and the value of the data's
            action, which is made smaller beside the error (equation 4).
    """

    conservative_weight: NonNegative = 1.0

    def losses_of(self, values: Any, rows: Rows, target: Value) -> Losses:
        """As of DQN, and the gap."""
        losses = super().losses_of(values, rows, target)
        expected = values.values
        gap = rows.weighted_mean(expected.logsumexp(1, keepdim=True) - expected.gather(1, rows.action))
        loss = losses.of[self.trained] + self.conservative_weight * gap
        metrics = {"loss": loss.detach(), "conservative_gap": gap.detach()}
        return Losses({self.trained: loss}, losses.metrics | metrics, losses.errors)
