"""AWAC: advantage-weighted regression of actions, for offline training and online fine-tuning."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, GaussianPolicy, check_scaled
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class AWAC(OffPolicyAlgorithm):
    """Nair et al., "AWAC: Accelerating Online RL with Offline Datasets" (arXiv 2006.09359), equation 13.

    As in the authors' code, weights are a softmax over the batch, scaled to a mean of 1. Actions are scaled from the
    bounds of the action space to [-1, 1].

    Args:
        distribution: of the policy's actions, within the scaled bounds or clipped to them.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics; targets take their minimum.
        temperature: divides advantages in the exponential weights (lambda).
        num_samples: actions of the policy sampled per state, for the baseline.
    """

    constrained_to_data: ClassVar[bool] = True
    actions = "bounded"
    unchangeable = frozenset({"distribution", "num_critics"})

    distribution: DistributionHead = GaussianPolicy(bounded_mean=True, min_log_std=-5.0)
    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    temperature: Positive = 1.0
    num_samples: Count = 1
    mini_batch_size: Count = 1024
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over scaled actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_scaled(hyper_parameters["distribution"], cls.__name__)

    def build(self) -> None:
        """Make policy, critics and target critics."""
        self.pi = self.actor.make("policy", self.distribution, acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against values of one next action of the policy (algorithm 1)."""
        with torch.no_grad():
            next_policy: Distribution = self.pi(rows.next)
            next_action = self.codec.clip(next_policy.sample(self.generator))
            target = smallest(self.target_critics(rows.next, next_action)).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the negative log-likelihood of the data's actions, weighted by their advantages (equation 13)."""
        policy: Distribution = self.pi(rows.now)
        weight = self.weights(self.advantage(rows, policy), rows)
        loss = -rows.mean(weight * policy.log_prob(rows.action))
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    @torch.no_grad()
    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """Return values (N, 1) of the data's actions minus the mean of the policy's."""
        number = self.num_samples
        action = self.codec.clip(policy.sample(self.generator, number)).transpose(0, 1).flatten(0, 1)
        view = rows.now if number == 1 else Repeated(rows.now, number)
        value = smallest(self.critics(rows.now, rows.action)).mean
        values = smallest(self.critics(view, action)).mean.view(-1, number)
        return value - values.mean(1, keepdim=True)

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return exponential advantage weights (N, 1), with a mean of 1."""
        return rows.softmax(advantage / self.temperature) * rows.count

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)
