"""SAC for discrete actions, with exact expectations over them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.outputs import Categorical, ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import elementwise_minimum, loss_of_critics
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)


class SACDiscrete(OffPolicyAlgorithm):
    """Christodoulou, "Soft Actor-Critic for Discrete Action Settings" (arXiv 1910.07207), equations 10 to 12.

    The paper's target of 0.98 suits a dozen actions or more, many of them equally good. With two actions, the better
    one would have a probability of at most 0.58, and the temperature would rise until rewards no longer matter: use 0.2
    to 0.5 there, or a decreasing schedule.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_alpha: learning rate of the temperature.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights.
        policy_delay: critic updates per update of the policy and of the temperature.
        initial_alpha: initial temperature, in reward per nat of entropy.
        learn_alpha: tune the temperature to a target entropy; False keeps the initial one.
        target_entropy_share: target entropy as a share of the largest one, the mean of log n over a batch, where n
            actions are allowed.
    """

    actions = "discrete"
    unchangeable = frozenset({"num_critics", "initial_alpha"})

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    policy_delay: Count = 1
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True
    target_entropy_share: UnitIntervalOrSchedule = 0.98
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make policy, critics, target critics and log-temperature."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.critics = self.actor.make_ensemble("critics", Values(huber_threshold=None), self.num_critics)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), lr="lr_alpha")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against soft values of the next states (equation 10)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            policy = self.pi(rows.next)
            value = _expectation(policy, [critic.values for critic in self.target_critics(rows.next)])
            target = value.backup(rows.reward + alpha * rows.discount * policy.entropy(), rows.discount)
        values = [critic.of(rows.action) for critic in self.critics(rows.now)]
        loss, errors = loss_of_critics(values, target, rows)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), "alpha": alpha[0]}, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of policy (equation 12) and temperature (equation 11), with the updated critics."""
        if (self.updates + 1) % self.policy_delay:
            return None
        alpha = self.log_alpha.detach().exp()
        policy = self.pi(rows.now)
        with torch.no_grad():
            values = [critic.values for critic in self.critics(rows.now)]
        value, entropies = _expectation(policy, values).mean, policy.entropy()
        policy_loss, entropy = -rows.mean(value + alpha * entropies), rows.mean(entropies.detach())
        losses = {self.train_pi: policy_loss}
        if self.learn_alpha:
            # The loss is of the log-temperature, which keeps the temperature positive.
            losses[self.train_alpha] = (self.log_alpha * (entropy - self.target_entropy(rows))).sum()
        metrics = {"policy_loss": policy_loss.detach(), "q_value": rows.mean(value.detach()), "entropy": entropy}
        return Losses(losses, metrics)

    def target_entropy(self, rows: Rows) -> float | Tensor:
        """Return the target of the policy's mean entropy in a batch, in nats; a Tensor is ()."""
        share, mask = self.current(self.target_entropy_share), self.actor.mask
        if mask is None:
            return share * math.log(self.codec.size)
        return share * rows.mean(mask.of(rows.now).flags.sum(1, keepdim=True).log())

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()

    @property
    def log_alpha(self) -> Tensor:
        """(1,): log-temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature, in reward per nat of entropy."""
        return self.log_alpha.exp().item()


def _expectation(policy: Categorical, values: Sequence[Tensor]) -> Value:
    """Return the exact expectation over actions of the minimum of values (N, n)."""
    return ScalarValue((policy.probabilities * elementwise_minimum(values)).sum(1, keepdim=True))
