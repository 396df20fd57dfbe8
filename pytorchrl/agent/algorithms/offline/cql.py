"""CQL: SAC with a penalty on the Q-values of actions outside the data."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.batched_passes import soft_maximum_of_critic
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive


class CQL(SAC):
    """Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), CQL(H).

    Critics also minimise the gap between the log-sum-exp of their values over all actions and the value of the data's
    action. The log-sum-exp is estimated with importance sampling from uniform actions, and from the policy's in the
    present and the next state (appendix F). Weights are those of the authors' code, where squared errors are not
    halved; here errors and gaps both are.

    Args:
        conservative_weight: weight of the gaps (alpha).
        num_samples: actions per state from each of the three distributions.
        lagrange_threshold: target of the gap, by a learnt multiplier (equation 30; tau); None uses a fixed weight.
        lr_multiplier: learning rate of the multiplier.
        backup_entropy: include the policy's entropy in TD targets.
    """

    constrained_to_data: ClassVar[bool] = True
    unchangeable = frozenset({"lagrange_threshold"})

    lr_pi: NonNegativeOrSchedule = 1e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_alpha: NonNegativeOrSchedule = 1e-4
    conservative_weight: NonNegative = 5.0
    num_samples: Count = 10
    lagrange_threshold: Positive | None = None
    lr_multiplier: NonNegativeOrSchedule = 1e-4
    backup_entropy: bool = False

    def build(self) -> None:
        """Make SAC's networks, and the logarithm of the multiplier."""
        super().build()
        if self.lagrange_threshold is not None:
            self.train_multiplier = self.variable("log_multiplier", 0.0, lr="lr_multiplier")

    def losses(self, rows: Rows) -> Losses:
        """Return SAC's loss of the critics with the conservative penalty (equation 4), and the multiplier's loss."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        gaps = self.gaps(values, rows)
        losses, metrics = {}, {"alpha": alpha[0], "conservative_gap": gaps.detach().mean()}
        if self.lagrange_threshold is None:
            penalty = gaps.sum()
        else:
            multiplier = self.training.variables["log_multiplier"].exp().clamp(max=_LARGEST_MULTIPLIER)[0]
            excess = gaps - self.lagrange_threshold
            penalty = multiplier.detach() * excess.sum()
            losses[self.train_multiplier] = -multiplier * self.conservative_weight * excess.detach().mean()
            metrics["multiplier"] = multiplier.detach()
        losses[self.train_critics] = loss = loss + 0.5 * self.conservative_weight * penalty
        return Losses(losses, {"critic_loss": loss.detach(), **metrics}, errors)

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return SAC's TD targets if ``backup_entropy``, else those without the policy's entropy."""
        if self.backup_entropy:
            return super().target_value(rows, alpha)
        next_action = self.pi(rows.next).sample(self.generator)
        return self.value_for_target(self.target_critics(rows.next, next_action)).backup(rows.reward, rows.discount)

    def gaps(self, values: Sequence[Value], rows: Rows) -> Tensor:
        """Return each critic's gap (critics,) between the log-sum-exp of all values and the data's value."""
        action, log_density = self.proposals(rows)
        soft_maxima = [
            soft_maximum_of_critic(each, rows.now, action, log_density, rows.weight) for each in self.critics
        ]
        return torch.stack(soft_maxima) - torch.stack([rows.weighted_mean(value.mean) for value in values])

    @torch.no_grad()
    def proposals(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return actions to sum over (N, M, A), and their log-densities under their proposals (N, M)."""
        number, size = self.num_samples, self.codec.size
        uniform = torch.empty((len(rows), number, size), device=self.device).uniform_(-1, 1, generator=self.generator)
        actions, log_densities = [uniform], [torch.full_like(uniform[..., 0], -size * math.log(2))]
        for view in (rows.now, rows.next):
            action, log_density = self.pi(view).sample_with_score(self.generator, number)
            actions.append(action.transpose(0, 1))
            log_densities.append(log_density[..., 0].T)
        return torch.cat(actions, dim=1), torch.cat(log_densities, dim=1)


_LARGEST_MULTIPLIER = 1e6
