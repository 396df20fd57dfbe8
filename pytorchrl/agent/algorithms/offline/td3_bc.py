"""TD3BC: TD3 with a behaviour cloning term in the policy's loss."""

from typing import ClassVar

from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class TD3BC(TD3):
    """Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning" (arXiv 2106.06860), TD3+BC.

    Args:
        alpha: weight of the critic's values, divided by their mean magnitude, relative to the squared distance to the
            data's actions (equation 5); 0 is behaviour cloning.
    """

    constrained_to_data: ClassVar[bool] = True

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    alpha: NonNegative = 2.5

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative scaled value plus the squared distance to the data's actions (equations 3 and 5)."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action = self.pi(rows.now)
        with self.critics[0].frozen():
            value = self.critics[0](rows.now, action).mean
        scale = self.alpha / rows.mean(value.detach().abs()).clamp(min=_TINY)
        distance = (action - rows.action).square().mean(1, keepdim=True)
        loss = rows.mean(distance - scale * value)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})


_TINY = 1e-8
"""Avoids division by 0 where all values are 0."""
