"""PGT: a stochastic policy that learns by the policy gradient theorem from a critic of its actions."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.svg0 import SVG0
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegativeOrSchedule


class PGT(SVG0):
    """Sutton et al., "Policy Gradient Methods for RL with Function Approximation" (NeurIPS 12, 1999), theorem 1.

    Gradients are those of log probabilities, weighted by how much better a drawn action is than the most likely one.
    States are those of the storage, and not weighted by how often the policy meets them.

    Args:
        entropy_coef: what a nat of the policy's entropy is worth in return.
    """

    entropy_coef: NonNegativeOrSchedule = 0.01

    def policy_loss(self, rows: Rows) -> Tensor:
        """(): its gradient is the negative one of the policy's value, by the first critic, and of its entropy."""
        policy = self.pi(rows.now)
        action, log_prob = policy.sample_with_score(self.generator)
        with torch.no_grad():
            critic = self.critics[0]
            advantage = critic(rows.now, action).mean - critic(rows.now, policy.mode()).mean
            weight = advantage - self.current(self.entropy_coef) * log_prob
        return -rows.mean(weight * log_prob)
