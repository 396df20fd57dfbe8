"""Path consistency learning, on-policy and with replay.

PCL: path consistency learning of policy and value function, on-policy and with replay.
UnifiedPCL: PCL with one Q-network that defines both policy and value function.
"""

from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, StateValue, Values
from pytorchrl.agent.actors.outputs import Categorical
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.on_and_off_policy import OnAndOffPolicy
from pytorchrl.agent.algorithms.actor_critic.paths import sums_along_paths
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive


class PCL(OnAndOffPolicy):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.

    Minimises the inconsistency of policy and value function along short paths, which needs no correction off-policy.

    Args:
        tau: weight of the entropy, in reward per nat.
        path_length: steps of a path (d); fewer where an episode or a segment ends.
        lr_value: learning rate of the value function; unused with ``together``.
        together: train policy and value function by one optimiser on the weighted sum of their losses; required with a
            shared body.
        value_loss_coef: with ``together``, weight of the value function's loss.
    """

    unchangeable = frozenset({"together"})

    tau: Positive = 0.1
    path_length: Count = 10
    lr_value: NonNegativeOrSchedule = 1e-3
    together: bool = False
    value_loss_coef: NonNegative = 0.5

    def build(self) -> None:
        """Make policy and value function, with one optimiser or two."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.value = self.actor.make("value", StateValue(), acts=True)
        if self.together:
            self.trained = self.train("policy_and_value", self.pi, self.value)
        else:
            self.train_pi = self.train("policy", self.pi)
            self.train_value = self.train("value", self.value, lr="lr_value")

    def losses(self, rows: Rows) -> Losses:
        """Return losses with the gradients of half the squared inconsistency (section 5)."""
        policy, value, next_value = self.pi(rows.now), self.value(rows.now), self.value(rows.next)
        gain, log_prob = sums_along_paths(rows, self.path_length, policy.log_prob(rows.action), value, next_value)
        inconsistency = gain - self.tau * log_prob.detach()
        value_loss = 0.5 * rows.weighted_mean(inconsistency.square())
        # Its gradient through the log-probabilities, divided by tau.
        error = inconsistency.detach()
        policy_loss = -rows.weighted_mean(error * log_prob)
        metrics = {
            "inconsistency": value_loss.detach(),
            "value": rows.mean(value.detach()),
            "entropy": rows.mean(policy.entropy().detach()),
        }
        if self.together:
            losses = {self.trained: policy_loss + self.value_loss_coef * value_loss}
        else:
            losses = {self.train_pi: policy_loss, self.train_value: value_loss}
        return Losses(losses, metrics, rows.per_row(error.abs()))

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)


_FIRST_SHARE = 0.01


class UnifiedPCL(OnAndOffPolicy):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.1.

    The policy is the softmax of the Q-network's values, and the value function their log-sum-exp.

    Args:
        tau: weight of the entropy, in reward per nat.
        path_length: steps of a path (d); fewer where an episode or a segment ends.
        value_loss_coef: weight of the gradient through the value function, relative to that through log-probabilities;
            1 gives the gradient of the squared inconsistency.
    """

    actions = "discrete"

    tau: Positive = 0.1
    path_length: Count = 10
    value_loss_coef: NonNegative = 1.0

    def build(self) -> None:
        """Make a Q-network with a value for each action."""
        self.q = self.actor.make("q", Values(), acts=True)
        with torch.no_grad():
            for parameter in self.q.head.parameters():
                # Small initial values, so that the initial policy is nearly uniform in spite of the division by tau.
                parameter.mul_(_FIRST_SHARE)
        self.trained = self.train("q", self.q)

    def losses(self, rows: Rows) -> Losses:
        """Return a loss with the gradient of half the squared inconsistency (section 5.1)."""
        (policy, value), (_, next_value) = self.policy_and_value(rows.now), self.policy_and_value(rows.next)
        gain, log_prob = sums_along_paths(rows, self.path_length, policy.log_prob(rows.action), value, next_value)
        inconsistency = gain - self.tau * log_prob.detach()
        value_loss = 0.5 * rows.weighted_mean(inconsistency.square())
        error = inconsistency.detach()
        policy_loss = -self.tau * rows.weighted_mean(error * log_prob)
        metrics = {
            "inconsistency": value_loss.detach(),
            "value": rows.mean(value.detach()),
            "entropy": rows.mean(policy.entropy().detach()),
        }
        loss = policy_loss + self.value_loss_coef * value_loss
        return Losses({self.trained: loss}, metrics, rows.per_row(error.abs()))

    def policy_and_value(self, view: View) -> tuple[Categorical, Tensor]:
        """Return ``exp((Q - V) / tau)`` and ``V = tau * log(sum(exp(Q / tau)))``."""
        scaled: Tensor = self.q(view).values / self.tau
        return Categorical(scaled), self.tau * torch.logsumexp(scaled, 1, keepdim=True)

    def policy(self, view: View, exploration: Exploration) -> Categorical:
        """Return the distribution of actions."""
        return self.policy_and_value(view)[0]
