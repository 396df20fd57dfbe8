"""IQL: values of the better ones of the data's actions, learnt without asking for any other action."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.offline.parts.weighted_regression import WeightedRegression
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive, UnitInterval


class IQL(WeightedRegression):
    """Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169), algorithm 1.

    Args:
        lr_value: learning rate of the state values.
        expectile: of the values of the data's actions that state values are (tau); 0.5 is their mean, 1 the largest.
        inverse_temperature: a weight is e to the power of it times the advantage (beta); 0 clones the data.
        max_weight: the largest weight.
    """

    lr_value: NonNegativeOrSchedule = 3e-4
    expectile: UnitInterval = 0.7
    inverse_temperature: NonNegative = 3.0
    max_weight: Positive = 100.0

    def build(self) -> None:
        """As all that weigh actions do, and state values."""
        super().build()
        self.value = self.actor.make("value", StateValue())
        self.train_value = self.train("value", self.value, lr="lr_value")

    def next_value(self, rows: Rows) -> ScalarValue:
        """The state values (equation 6)."""
        return ScalarValue(self.value(rows.next))

    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """(N, 1): the smallest target critic's value of the data's action less the state's value."""
        with torch.no_grad():
            value = smallest(self.target_critics(rows.now, rows.action)).mean
        advantage: Tensor = value - self.value(rows.now)
        return advantage

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """(N, 1): exponentials of advantages, up to the largest weight (equation 7)."""
        return (self.inverse_temperature * advantage).exp().clamp(max=self.max_weight)

    def losses_beside(self, rows: Rows, advantage: Tensor) -> dict[Trained, Tensor]:
        """That of the state values (equation 5)."""
        return {self.train_value: rows.weighted_mean(expectile_loss(advantage, self.expectile))}


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """Squares of differences, those above 0 weighted by the expectile, the others by what it lacks to 1."""
    return torch.where(difference > 0, expectile, 1 - expectile) * difference.square()
