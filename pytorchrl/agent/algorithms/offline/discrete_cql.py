"""DiscreteCQL: DQN with a penalty on the Q-values of actions outside the data."""

import torch

from pytorchrl.agent.actors.outputs import ActionValues
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

    def losses(self, rows: Rows) -> Losses:
        """Return equation 4: DQN's loss with the conservative penalty."""
        with torch.no_grad():
            target = self.target_value(rows)
        values: ActionValues = self.q(rows.now)
        value, expected = values.of(rows.action), values.values
        bellman_loss, errors = value.weighted_loss(rows.weight, target)
        gap = rows.weighted_mean(expected.logsumexp(1, keepdim=True) - expected.gather(1, rows.action))
        loss = bellman_loss + self.conservative_weight * gap
        metrics = {
            "loss": loss.detach(),
            "q_value": rows.mean(value.mean.detach()),
            "conservative_gap": gap.detach(),
        }
        return Losses({self.trained: self.reduced(loss, rows)}, metrics, rows.per_row(errors))
