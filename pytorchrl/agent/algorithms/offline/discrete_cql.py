"""DiscreteCQL: DQN with a penalty on the Q-values of actions outside the data."""

from typing import Any

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import NonNegative


class DiscreteCQL(DQN):
    """Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), CQL(H).

    Args:
        conservative_weight: weight of the penalty, the gap between the log-sum-exp of all actions' values and the value
            of the data's action (alpha, equation 4).
    """

    conservative_weight: NonNegative = 1.0

    def losses_of(self, values: Any, rows: Rows, target: Value) -> Losses:
        """Return DQN's loss with the conservative penalty."""
        losses = super().losses_of(values, rows, target)
        expected = values.values
        gap = rows.weighted_mean(expected.logsumexp(1, keepdim=True) - expected.gather(1, rows.action))
        loss = losses.of[self.trained] + self.conservative_weight * gap
        metrics = {"loss": loss.detach(), "conservative_gap": gap.detach()}
        return Losses({self.trained: loss}, losses.metrics | metrics, losses.errors)
