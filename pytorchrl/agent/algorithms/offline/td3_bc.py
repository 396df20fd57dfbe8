"""TD3BC: TD3 whose policy also imitates the data that it learns from."""

from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class TD3BC(TD3):
    """Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning" (arXiv 2106.06860), TD3+BC.

    Args:
        alpha: weight of the critic's values beside the squared distance to the data's actions, once values are divided
            by their mean magnitude (equation 5); 0 clones the data.
    """

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    alpha: NonNegative = 2.5

    def policy_loss(self, rows: Rows) -> Tensor:
        """(): the negative scaled value of the policy's actions, and their distance to those of the data."""
        action = self.pi(rows.now)
        with self.critics[0].frozen():
            value = self.critics[0](rows.now, action).mean
        scale = self.alpha / rows.mean(value.detach().abs()).clamp(min=_TINY)
        distance = (action - rows.action).square().mean(1, keepdim=True)
        return rows.mean(distance - scale * value)


_TINY = 1e-8
"""Keeps values of 0 from being divided by their magnitude."""
