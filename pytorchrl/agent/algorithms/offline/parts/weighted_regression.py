"""Base classes of advantage-weighted regression."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import DistributionHead, GaussianPolicy
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.parts.actor_critic import ActorCritic
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Explorer, explorer_for
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule


class WeightedRegression(ActorCritic):
    """Behaviour cloning weighted by advantages, with critics trained by temporal differences.

    Args:
        distribution: of the policy's actions, within the scaled bounds or clipped to them.
    """

    unchangeable = frozenset({"distribution"})

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    num_critics: Count = 2
    distribution: DistributionHead = GaussianPolicy(bounded_mean=True, min_log_std=-5.0)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over scaled actions."""
        super().check_hyper_parameters(hyper_parameters)
        head = hyper_parameters["distribution"]
        if not head.is_scaled:
            raise ValueError(
                f"{cls.__name__}: distribution must be of scaled actions, as GaussianPolicy(bounded_mean=True) and "
                f"SquashedGaussianPolicy() are, got {head!r}"
            )

    @abstractmethod
    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """Return advantages (N, 1) of the data's actions; gradients only for networks trained with the policy.

        Args:
            rows: of a batch.
            policy: of these rows.
        """

    @abstractmethod
    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the weights (N, 1) of the data's log-probabilities, given advantages (N, 1)."""

    def policy_head(self) -> Head:
        """Return the head of ``distribution``."""
        return self.distribution

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)

    def policy_losses(self, rows: Rows) -> Losses:
        """Return the negative weighted log-likelihood, and the losses of networks trained with the policy."""
        policy: Distribution = self.pi(rows.now)
        advantage = self.advantage(rows, policy)
        weight = self.weights(advantage.detach(), rows)
        loss = -rows.mean(weight * policy.log_prob(rows.action))
        return Losses({self.train_pi: loss, **self.losses_beside(rows, advantage)})

    def losses_beside(self, rows: Rows, advantage: Tensor) -> dict[Trained, Tensor]:
        """Return further losses of the policy's update, given advantages (N, 1): none."""
        return {}


class SampledAdvantage(WeightedRegression):
    """Weighted regression with advantages over sampled actions of the policy.

    Args:
        num_samples: actions of the policy sampled per state, for the baseline.
    """

    num_samples: Count = 1

    @torch.no_grad()
    def advantage(self, rows: Rows, policy: Distribution) -> Tensor:
        """Return the values of the data's actions minus the baseline of the policy's actions."""
        number = self.num_samples
        action = self.codec.clip(policy.sample(self.generator, number)).transpose(0, 1).flatten(0, 1)
        view = rows.now if number == 1 else Repeated(rows.now, number)
        value = smallest(self.critics(rows.now, rows.action)).mean
        return value - self.baseline(smallest(self.critics(view, action)).mean.view(-1, number))

    def baseline(self, values: Tensor) -> Tensor:
        """Return the mean (N, 1) of the values (N, M) of the policy's actions."""
        return values.mean(1, keepdim=True)

    def value_of_policy(self, policy: Distribution, view: View) -> ScalarValue:
        """Return the minimum of the target critics' values of sampled actions."""
        return smallest(self.target_critics(view, self.codec.clip(policy.sample(self.generator))))
