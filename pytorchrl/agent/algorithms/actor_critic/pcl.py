"""PCL: a policy and a value function that agree along paths, of new and of replayed steps."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, StateValue, Values
from pytorchrl.agent.actors.outputs import Categorical, Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.fresh_and_replayed import FreshAndReplayed
from pytorchrl.agent.algorithms.actor_critic.paths import Paths, discounted_sums, later
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Exploration
from storages.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive


class PathConsistency(FreshAndReplayed):
    """Moves policy and value function to consistency along paths of some steps.

    Where an episode ends, a path ends before: it bootstraps with 0 after a death, and else with the value of what
    followed. Paths of other policies are as good as those of the present one.

    Args:
        tau: what a nat of the policy's entropy is worth in reward.
        path_length: steps of a path (d), fewer where an episode or a segment ends.
    """

    tau: Positive = 0.1
    path_length: Count = 10

    @abstractmethod
    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """The distribution of actions, and V (N, 1)."""

    @abstractmethod
    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """The loss of each group of parameters."""

    def losses(self, rows: Rows) -> Losses:
        """Half the squared inconsistency, by log probabilities and by values (section 5)."""
        policy, value = self.policy_and_value(rows.now)
        _, next_value = self.policy_and_value(rows.next)
        log_prob = policy.log_prob(rows.action)
        paths = Paths(rows)
        discount, continues = paths.in_time(rows.discount), paths.continues
        factors = discount * continues
        bootstrapped = paths.in_time(rows.reward) + discount * (1 - continues) * paths.in_time(next_value)
        rewards, products = discounted_sums(bootstrapped, factors, self.path_length)
        surprise, _ = discounted_sums(paths.in_time(log_prob), factors, self.path_length)
        surprise = paths.rows(surprise)
        begin = paths.in_time(value)
        gain = paths.rows(rewards + products * later(begin, self.path_length) - begin)
        inconsistency = gain - self.tau * surprise.detach()
        value_loss = 0.5 * rows.weighted_mean(inconsistency.square())
        error = inconsistency.detach()
        # The gradient of half the square, divided by tau.
        policy_loss = -rows.weighted_mean(error * surprise)
        metrics = {
            "inconsistency": value_loss.detach(),
            "value": rows.mean(value.detach()),
            "entropy": rows.mean(policy.entropy().detach()),
        }
        return Losses(self.losses_of(policy_loss, value_loss), metrics, rows.per_row(error.abs()))


class PCL(PathConsistency):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.

    Args:
        lr_value: learning rate of the value function; unused with ``together``.
        together: move policy and value function by one optimiser, on the weighted sum of their losses; needed where
            they share a body.
        value_loss_coef: with ``together``, weight of the value function's loss.
    """

    unchangeable = PathConsistency.unchangeable | {"together"}

    lr_value: NonNegativeOrSchedule = 1e-3
    together: bool = False
    value_loss_coef: NonNegative = 0.5

    def build(self) -> None:
        """Policy and value function, with one optimiser or two."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.value = self.actor.make("value", StateValue(), acts=True)
        if self.together:
            self.trained = self.train("policy_and_value", self.pi, self.value, max_grad_norm="max_grad_norm")
        else:
            self.train_pi = self.train("policy", self.pi, max_grad_norm="max_grad_norm")
            self.train_value = self.train("value", self.value, lr="lr_value", max_grad_norm="max_grad_norm")

    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """Of a network each."""
        return self.pi(view), self.value(view)

    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """Of each network, or their weighted sum."""
        if self.together:
            return {self.trained: policy_loss + self.value_loss_coef * value_loss}
        return {self.train_pi: policy_loss, self.train_value: value_loss}


class UnifiedPCL(PathConsistency):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.1.

    One network of action values is the policy, their softmax, and the value function, their smooth maximum.

    Args:
        value_loss_coef: weight of the gradient through the value function beside that through log probabilities; 1
            moves along the gradient of the squared inconsistency.
    """

    actions = "discrete"

    value_loss_coef: NonNegative = 1.0

    def build(self) -> None:
        """A network with a value for each action."""
        self.q = self.actor.make("q", Values(), acts=True)
        with torch.no_grad():
            for parameter in self.q.head.parameters():
                # All actions are almost as likely at first, though their values are divided by tau.
                parameter.mul_(_FIRST_SHARE)
        self.trained = self.train("q", self.q, max_grad_norm="max_grad_norm")

    def policy(self, view: View, exploration: Exploration) -> Any:
        """The distribution of actions."""
        return self.policy_and_value(view)[0]

    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """``exp((Q - V) / tau)`` and ``V = tau * log(sum(exp(Q / tau)))``."""
        scaled: Tensor = self.q(view).values / self.tau
        return Categorical(scaled), self.tau * torch.logsumexp(scaled, 1, keepdim=True)

    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """The weighted sum; log probabilities are action values divided by tau, which is made up for."""
        return {self.trained: self.tau * policy_loss + self.value_loss_coef * value_loss}


_FIRST_SHARE = 0.01
