"""PGT: off-policy actor-critic with the likelihood-ratio policy gradient and a Q-function."""

import torch

from pytorchrl.agent.algorithms.actor_critic.svg0 import SVG0
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegativeOrSchedule


class PGT(SVG0):
    """Sutton et al., "Policy Gradient Methods for RL with Function Approximation" (NeurIPS 12, 1999), theorem 1.

    The gradient of a sampled action's log-probability is weighted by its advantage over the most likely action. States
    are those of the storage, not weighted by the policy's state distribution. Critics learn as those of SVG0.

    Args:
        entropy_coef: weight of the entropy bonus, in return per nat.
    """

    entropy_coef: NonNegativeOrSchedule = 0.01

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return a surrogate loss with the negative policy gradient by the first critic, and entropy bonus."""
        if (self.updates + 1) % self.policy_delay:
            return None
        policy, critic = self.pi(rows.now), self.critics[0]
        action, log_prob = policy.sample_with_score(self.generator)
        with torch.no_grad():
            advantage = critic(rows.now, action).mean - critic(rows.now, policy.mode()).mean
            weight = advantage - self.current(self.entropy_coef) * log_prob
        loss = -rows.mean(weight * log_prob)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})
