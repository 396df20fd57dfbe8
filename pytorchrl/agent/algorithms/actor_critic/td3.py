"""TD3: DDPG with two critics, delayed policy updates and target policy smoothing."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG
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

    def next_action(self, rows: Rows) -> Tensor:
        """Return the target policy's next actions (N, *action), smoothed by noise (section 5.3)."""
        action = super().next_action(rows)
        noise = torch.empty_like(action).normal_(0, self.target_noise, generator=self.generator)
        return (action + noise.clamp(-self.target_noise_clip, self.target_noise_clip)).clamp(-1, 1)
