"""Base class of weighted regression with a state-value network, for learning without actions outside the data."""

from abc import abstractmethod

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.offline.parts.weighted_regression import WeightedRegression
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive


class StateValueRegression(WeightedRegression):
    """Weighted regression whose critics bootstrap on state values, fitted to the values of the data's actions.

    Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169), algorithm 1. The
    critics are never evaluated at actions outside the data.

    Args:
        lr_value: learning rate of the state-value network.
        inverse_temperature: factor of advantages in the exponential weights (beta); 0 is behaviour cloning.
        max_weight: the largest weight.
    """

    lr_value: NonNegativeOrSchedule = 3e-4
    inverse_temperature: NonNegative = 3.0
    max_weight: Positive = 100.0

    @abstractmethod
    def value_loss(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the state values' loss (N, 1), given advantages (N, 1) with gradients in the state values."""

    def build(self) -> None:
        """Make actor, critics and the state-value network."""
        super().build()
        self.value = self.actor.make("value", StateValue())
        self.train_value = self.train("value", self.value, lr="lr_value")

    def next_value(self, rows: Rows) -> ScalarValue:
        """Return the next states' values (equation 6)."""
        return ScalarValue(self.value(rows.next))

    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """Return the minimum of the target critics minus the state value (N, 1)."""
        with torch.no_grad():
            value = smallest(self.target_critics(rows.now, rows.action)).mean
        advantage: Tensor = value - self.value(rows.now)
        return advantage

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return exponential advantage weights (N, 1), clipped to ``max_weight`` (equation 7)."""
        return (self.inverse_temperature * advantage).exp().clamp(max=self.max_weight)

    def losses_beside(self, rows: Rows, advantage: Tensor) -> dict[Trained, Tensor]:
        """Return the loss of the state values, with importance weights."""
        return {self.train_value: rows.weighted_mean(self.value_loss(advantage, rows))}
