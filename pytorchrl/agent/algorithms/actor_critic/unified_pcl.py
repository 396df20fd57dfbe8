"""PCL with one Q-network that defines both policy and value function."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.outputs import Categorical, Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.path_consistency import PathConsistency
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import NonNegative

_FIRST_SHARE = 0.01


class UnifiedPCL(PathConsistency):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.1.

    The policy is the softmax of the Q-network's values, and the value function their log-sum-exp.

    Args:
        value_loss_coef: weight of the gradient through the value function, relative to that through log-probabilities;
            1 gives the gradient of the squared inconsistency.
    """

    actions = "discrete"

    value_loss_coef: NonNegative = 1.0

    def build(self) -> None:
        """Make a Q-network with a value for each action."""
        self.q = self.actor.make("q", Values(), acts=True)
        with torch.no_grad():
            for parameter in self.q.head.parameters():
                # Small initial values, so that the initial policy is nearly uniform in spite of the division by tau.
                parameter.mul_(_FIRST_SHARE)
        self.trained = self.train("q", self.q, max_grad_norm="max_grad_norm")

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.policy_and_value(view)[0]

    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """Return ``exp((Q - V) / tau)`` and ``V = tau * log(sum(exp(Q / tau)))``."""
        scaled: Tensor = self.q(view).values / self.tau
        return Categorical(scaled), self.tau * torch.logsumexp(scaled, 1, keepdim=True)

    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """Return the weighted sum; the factor tau undoes the division of Q-values by tau in log-probabilities."""
        return {self.trained: self.tau * policy_loss + self.value_loss_coef * value_loss}
