"""PGT: off-policy actor-critic with the likelihood-ratio policy gradient and a Q-function."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.svg0 import SVG0
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegativeOrSchedule


class PGT(SVG0):
    """Sutton et al., "Policy Gradient Methods for RL with Function Approximation" (NeurIPS 12, 1999), theorem 1.

    The gradient of a sampled action's log-probability is weighted by its advantage over the most likely action. States
    are those of the storage, not weighted by the policy's state distribution.

    Args:
        entropy_coef: weight of the entropy bonus, in return per nat.
    """

    entropy_coef: NonNegativeOrSchedule = 0.01

    def policy_loss(self, rows: Rows) -> Tensor:
        """Return a surrogate loss () with the negative policy gradient by the first critic, and entropy bonus."""
        policy = self.pi(rows.now)
        action, log_prob = policy.sample_with_score(self.generator)
        with torch.no_grad():
            critic = self.critics[0]
            advantage = critic(rows.now, action).mean - critic(rows.now, policy.mode()).mean
            weight = advantage - self.current(self.entropy_coef) * log_prob
        return -rows.mean(weight * log_prob)
