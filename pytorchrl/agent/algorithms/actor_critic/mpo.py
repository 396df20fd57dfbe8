"""MPO: a policy that is fitted to its own actions, the better ones weighted more, within trust regions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, GaussianPolicy, SquashedGaussianPolicy
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import DiagonalGaussian, Distribution, SquashedGaussian, Value
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.actor_critic.parts.maximum_a_posteriori import Candidates, MaximumAPosteriori
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Positive


class MPO(MaximumAPosteriori):
    """Abdolmaleki et al., "Maximum a Posteriori Policy Optimisation" (arXiv 1806.06920).

    Mean and covariance are learnt apart, each within a trust region around the target policy (Abdolmaleki et al.,
    "Relative Entropy Regularized Policy Iteration", arXiv 1812.02256), so that the covariance does not collapse.
    Rewards are those of the storage, of one step or the sum of several, in the place of Retrace.

    Args:
        distribution: of the policy's actions: a ``GaussianPolicy`` with a bounded mean, whose actions are clipped where
            critics and environments take them, or a ``SquashedGaussianPolicy``.
        num_samples: actions drawn from the target policy in each state.
        epsilon_mean: how far the mean's step may move the policy away from the target policy, in nats.
        epsilon_covariance: how far the covariance's step may.
    """

    actions = "bounded"
    unchangeable = MaximumAPosteriori.unchangeable | {"distribution"}

    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, initial_log_std=-0.5)
    num_samples: Count = 20
    epsilon_mean: Positive = 0.1
    epsilon_covariance: Positive = 5e-4

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse distributions that have no mean and covariance, or actions that are not scaled."""
        super().check_hyper_parameters(hyper_parameters)
        head = hyper_parameters["distribution"]
        if not (head.is_scaled and isinstance(head, GaussianPolicy | SquashedGaussianPolicy)):
            raise ValueError(
                f"{cls.__name__}: distribution must be a GaussianPolicy(bounded_mean=True) or a "
                f"SquashedGaussianPolicy(), whose mean and covariance are learnt apart, got {head!r}"
            )

    def policy_head(self) -> Head:
        """The user's."""
        return self.distribution

    def make_critics(self) -> Ensemble:
        """Networks of observation and action."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)

    def trust_regions(self) -> Mapping[str, float]:
        """Of mean and covariance."""
        return {"mean": self.epsilon_mean, "covariance": self.epsilon_covariance}

    def parts(
        self, policy: DiagonalGaussian | SquashedGaussian, before: DiagonalGaussian | SquashedGaussian
    ) -> Mapping[str, Distribution]:
        """The mean that is learnt with the covariance of the target policy, and the other way round."""
        (mean, log_std), (mean_before, log_std_before) = policy.parameters, before.parameters
        kind = type(policy)
        return {"mean": kind(mean, log_std_before), "covariance": kind(mean_before, log_std)}

    def candidates(self, view: View) -> Candidates:
        """Drawn ones, all valued in one pass."""
        number = self.num_samples
        policy: Distribution = self.target_pi(view)
        action = policy.sample(self.generator, number)  # (M, N, A)
        rows = self.codec.clip(action).transpose(0, 1).flatten(0, 1)
        values = smallest(self.target_critics(Repeated(view, number), rows)).mean.view(-1, number)
        log_prior = torch.full_like(values[:, :1], -math.log(number))
        return Candidates(policy, log_prior, values, lambda learnt: learnt.log_prob(action)[..., 0].T)

    def values_taken(self, rows: Rows) -> Sequence[Value]:
        """Of observations and actions."""
        values: Sequence[Value] = self.critics(rows.now, rows.action)
        return values
