"""Offline Q-learning without evaluating actions outside the data.

IQL: offline Q-learning by expectile regression, without evaluating actions outside the data.
XQL: offline Q-learning by Gumbel regression, whose state values are soft maxima over the data's actions.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, GaussianPolicy, StateValue, check_scaled
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)


class IQL(OffPolicyAlgorithm):
    """Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169), algorithm 1.

    Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        distribution: of the policy's actions, within the scaled bounds or clipped to them.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_value: learning rate of the state-value network.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics; targets take their minimum.
        inverse_temperature: factor of advantages in the exponential weights (beta); 0 is behaviour cloning.
        max_weight: the largest weight.
        expectile: expectile of the data's action values that state values estimate (tau); 0.5 is the mean, 1 the
            maximum.
    """

    constrained_to_data: ClassVar[bool] = True
    actions = "bounded"
    unchangeable = frozenset({"distribution", "num_critics"})

    distribution: DistributionHead = GaussianPolicy(bounded_mean=True, min_log_std=-5.0)
    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_value: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    inverse_temperature: NonNegative = 3.0
    max_weight: Positive = 100.0
    expectile: UnitInterval = 0.7
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over scaled actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_scaled(hyper_parameters["distribution"], cls.__name__)

    def build(self) -> None:
        """Make policy, critics, target critics and state values."""
        self.pi = self.actor.make("policy", self.distribution, acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.value = self.actor.make("value", StateValue())
        self.train_value = self.train("value", self.value, lr="lr_value")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against rewards plus the next states' values (equation 6)."""
        with torch.no_grad():
            target = ScalarValue(self.value(rows.next)).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the losses of state values (equation 5) and policy (equation 7)."""
        policy: Distribution = self.pi(rows.now)
        with torch.no_grad():
            value = smallest(self.target_critics(rows.now, rows.action)).mean
        advantage = value - self.value(rows.now)
        value_loss = rows.weighted_mean(self.value_loss(advantage, rows))
        weight = (self.inverse_temperature * advantage.detach()).exp().clamp(max=self.max_weight)
        policy_loss = -rows.mean(weight * policy.log_prob(rows.action))
        return Losses({self.train_pi: policy_loss, self.train_value: value_loss}, {"policy_loss": policy_loss.detach()})

    def value_loss(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the expectile loss (N, 1) of the state values."""
        return expectile_loss(advantage, self.expectile)

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)


class XQL(IQL):
    """Garg et al., "Extreme Q-Learning: MaxEnt RL without Entropy" (arXiv 2301.02328), algorithm 1.

    IQL whose state values are soft maxima over the data's actions, by Gumbel regression. The loss of the state values
    is scaled and clipped as in the authors' code, against overflow and outliers.

    Args:
        value_temperature: divides the errors of state values, in reward (beta); near 0 state values estimate the
            maximum of the data's action values, with a large one their mean.
        max_clip: the largest error of a state value, divided by ``value_temperature``, that has a gradient; None for
            no bound.
    """

    expectile: ClassVar[float] = 0.0  # type: ignore[misc]  # value_temperature takes its place
    value_temperature: Positive = 2.0
    max_clip: Positive | None = 7.0

    def value_loss(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the Gumbel loss (N, 1) of the state values, divided by the batch's largest exponential."""
        error = advantage / self.value_temperature
        error = error if self.max_clip is None else error.clamp(max=self.max_clip)
        # Where all errors are far below 0, the authors bound the factor by e.
        return gumbel_loss(error, rows.maximum(error.detach()).clamp(min=-1.0))


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """Return squared differences, weighted by ``expectile`` if positive, else by ``1 - expectile``."""
    return torch.where(difference > 0, expectile, 1 - expectile) * difference.square()


def gumbel_loss(error: Tensor, shift: Tensor) -> Tensor:
    """Return ``exp(error) - error - 1`` divided by ``exp(shift)``, finite where ``shift`` is the largest error."""
    return (error - shift).exp() - (error + 1) * (-shift).exp()
