"""A stochastic policy with reparameterised, or likelihood-ratio, gradients.

SVG0: a stochastic policy with reparameterised gradients through its critic.
PGT: off-policy actor-critic with the likelihood-ratio policy gradient and a Q-function.
"""

from typing import ClassVar

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import SquashedGaussianPolicy
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, Sample
from storages.component.hyper_parameters import NonNegativeOrSchedule


class SVG0(DDPG):
    """Heess et al., "Learning Continuous Control Policies by Stochastic Value Gradients" (arXiv 1510.09142), SVG(0).

    DDPG with a stochastic policy. The paper infers the noise of the actions taken. Here, as in later work, noise is
    sampled again, so that replayed actions need not come from the current policy.
    """

    exploration_noise: ClassVar[float] = 0.0  # type: ignore[misc]  # actions are sampled

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against rewards plus values of the target policy's sampled actions."""
        with torch.no_grad():
            next_action = self.target_pi(rows.next).sample(self.generator)
            target = smallest(self.target_critics(rows.next, next_action)).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative mean value of reparameterised actions by the first critic."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action = self.pi(rows.now).rsample(self.generator)
        with self.critics[0].frozen():
            loss = -rows.mean(self.critics[0](rows.now, action).mean)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def policy_head(self) -> Head:
        """Return a squashed Gaussian head."""
        return SquashedGaussianPolicy()

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()


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
