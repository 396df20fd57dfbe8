"""IQL: offline Q-learning by expectile regression, without evaluating actions outside the data."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.offline.parts.state_value_regression import StateValueRegression
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import UnitInterval


class IQL(StateValueRegression):
    """Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169), algorithm 1.

    Args:
        expectile: expectile of the data's action values that state values estimate (tau); 0.5 is the mean, 1 the
            maximum.
    """

    expectile: UnitInterval = 0.7

    def value_loss(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the expectile loss (N, 1) of the state values (equation 5)."""
        return expectile_loss(advantage, self.expectile)


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """Return squared differences, weighted by ``expectile`` if positive, else by ``1 - expectile``."""
    return torch.where(difference > 0, expectile, 1 - expectile) * difference.square()
