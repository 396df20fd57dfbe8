"""CRR: critic-regularised regression, behaviour cloning filtered or weighted by advantages."""

from typing import Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, GaussianPolicy
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Repeated
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.offline.awac import AWAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Positive


class CRR(AWAC):
    """Wang et al., "Critic Regularized Regression" (arXiv 2006.15134), equations 2 to 4.

    AWAC whose targets take actions of a target policy, and whose weights are not relative to the batch.

    Args:
        weighting: "exp" weights actions by their exponentiated advantage, divided by the temperature (beta); "binary"
            takes only actions of positive advantage.
        compared_with: baseline of advantages: the "mean" or the largest ("max") value of the policy's actions.
        max_weight: the largest weight of "exp".
    """

    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, min_log_std=-5.0)
    num_critics: Count = 1
    weighting: Literal["exp", "binary"] = "exp"
    compared_with: Literal["mean", "max"] = "mean"
    num_samples: Count = 4
    max_weight: Positive = 20.0
    mini_batch_size: Count = 256

    def build(self) -> None:
        """Make policy, critics and their targets."""
        super().build()
        self.target_pi = self.target(self.pi, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against values of one next action of the target policy (algorithm 1)."""
        with torch.no_grad():
            next_policy: Distribution = self.target_pi(rows.next)
            next_action = self.codec.clip(next_policy.sample(self.generator))
            target = smallest(self.target_critics(rows.next, next_action)).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the negative log-likelihood of the data's actions, weighted by their advantages (algorithm 1)."""
        policy: Distribution = self.pi(rows.now)
        weight = self.weights(self.advantage(rows, policy), rows)
        loss = -rows.mean(weight * policy.log_prob(rows.action))
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    @torch.no_grad()
    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """Return values (N, 1) of the data's actions minus the mean or maximum of the policy's."""
        number = self.num_samples
        action = self.codec.clip(policy.sample(self.generator, number)).transpose(0, 1).flatten(0, 1)
        view = rows.now if number == 1 else Repeated(rows.now, number)
        value = smallest(self.critics(rows.now, rows.action)).mean
        values = smallest(self.critics(view, action)).mean.view(-1, number)
        baseline = values.amax(1, keepdim=True) if self.compared_with == "max" else values.mean(1, keepdim=True)
        return value - baseline

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return binary weights (N, 1), or exponential ones up to ``max_weight``."""
        if self.weighting == "binary":
            return (advantage > 0).float()
        return (advantage / self.temperature).exp().clamp(max=self.max_weight)
