"""TD3: DDPG with two critics, delayed policy updates and target policy smoothing."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Limit, NonNegative


class TD3(DDPG):
    """Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (arXiv 1802.09477).

    Args:
        target_noise: standard deviation of the noise on the target policy's actions in [-1, 1].
        target_noise_clip: clipping range of that noise.
    """

    num_critics: Count = 2
    policy_delay: Count = 2
    target_noise: NonNegative = 0.2
    target_noise_clip: Limit = 0.5

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against the smallest value of a smoothed next action (algorithm 1)."""
        with torch.no_grad():
            next_values = self.target_critics(rows.next, self.smoothed_next_action(rows))
            target = smallest(next_values).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def smoothed_next_action(self, rows: Rows) -> Tensor:
        """Return the target policy's actions (N, A) in next states, with clipped noise."""
        action: Tensor = self.target_pi(rows.next)
        noise = torch.empty_like(action).normal_(0, self.target_noise, generator=self.generator)
        noise.clamp_(-self.target_noise_clip, self.target_noise_clip)
        return (action + noise).clamp(-1, 1)
