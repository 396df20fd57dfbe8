"""PPO: policy gradients on rollouts, each used for several epochs within a clipped distance."""

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.policy_gradient.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.hyper_parameters import Count, NonNegativeOrSchedule, Positive
from storages.transition import LOGP, RET, VAL


class PPO(PolicyAndValue):
    """Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    Adam's epsilon is that of the paper's implementation.

    Args:
        clip_param: how far the ratio of probabilities may move before its gradient stops.
        use_clipped_value_loss: keep new values within ``clip_param`` of those when acting; for rewards scaled so that
            values change by about that much, else it holds the value function back.
        target_kl: an update phase ends when the policy has diverged by 1.5 times this; None never ends one.
    """

    num_epochs: Count = 4
    num_mini_batch: Count = 4
    clip_param: NonNegativeOrSchedule = 0.2
    use_clipped_value_loss: bool = False
    target_kl: Positive | None = None
    optimizer: Optimizer = Adam(eps=1e-5)

    def losses(self, rows: Rows) -> Losses:
        """The clipped surrogate objective (equation 7), the value function's error and the entropy (equation 9)."""
        policy, value = self.pi(rows.now), self.value(rows.now)
        clip_param = self.current(self.clip_param)
        log_ratio = policy.log_prob(rows.action) - rows[LOGP]
        ratio = log_ratio.exp()
        # Schulman's estimate of the divergence: unbiased, never negative, of low variance.
        divergence = (ratio.detach() - 1 - log_ratio.detach()).mean()
        if self.target_kl is not None and divergence > 1.5 * self.target_kl:
            return Losses({}, {"kl": divergence}, stop=True)

        advantages = self.advantages(rows)
        clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
        policy_loss = -torch.minimum(ratio * advantages, clipped_ratio * advantages).mean()
        value_loss = self._value_loss(value, rows, clip_param)
        clip_fraction = (clipped_ratio != ratio).float().mean()
        return self.summed(policy_loss, value_loss, policy.entropy().mean(), kl=divergence, clip_fraction=clip_fraction)

    def _value_loss(self, value: Tensor, rows: Rows, clip_param: float) -> Tensor:
        loss: Tensor = (value - rows[RET]).square()
        if self.use_clipped_value_loss:
            near = rows[VAL] + (value - rows[VAL]).clamp(-clip_param, clip_param)
            loss = torch.maximum(loss, (near - rows[RET]).square())
        return 0.5 * loss.mean()
