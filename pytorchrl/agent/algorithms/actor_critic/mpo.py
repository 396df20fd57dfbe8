"""MPO: a policy fitted to sampled actions weighted by exponentiated Q-values, within KL trust regions."""

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

    Mean and covariance have separate trust regions around the target policy (Abdolmaleki et al., "Relative Entropy
    Regularized Policy Iteration", arXiv 1812.02256), so that the covariance does not collapse. Targets use the
    storage's one-step or n-step returns instead of Retrace.

    Args:
        distribution: of the policy's actions: a ``GaussianPolicy`` with a bounded mean, whose actions are clipped for
            critics and environments, or a ``SquashedGaussianPolicy``.
        num_samples: actions sampled from the target policy in each state.
        epsilon_mean: bound of the KL divergence from the target policy by the mean, in nats.
        epsilon_covariance: bound of the KL divergence from the target policy by the covariance, in nats.
    """

    actions = "bounded"
    unchangeable = frozenset({"distribution"})

    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, initial_log_std=-0.5)
    num_samples: Count = 20
    epsilon_mean: Positive = 0.1
    epsilon_covariance: Positive = 5e-4

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is Gaussian, over scaled actions."""
        super().check_hyper_parameters(hyper_parameters)
        head = hyper_parameters["distribution"]
        if not (head.is_scaled and isinstance(head, GaussianPolicy | SquashedGaussianPolicy)):
            raise ValueError(
                f"{cls.__name__}: distribution must be a GaussianPolicy(bounded_mean=True) or a "
                f"SquashedGaussianPolicy(), whose mean and covariance are constrained separately, got {head!r}"
            )

    def policy_head(self) -> Head:
        """Return the head of ``distribution``."""
        return self.distribution

    def make_critics(self) -> Ensemble:
        """Make Q-networks of observation and action."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)

    def trust_regions(self) -> Mapping[str, float]:
        """Return the bounds for mean and covariance."""
        return {"mean": self.epsilon_mean, "covariance": self.epsilon_covariance}

    def parts(
        self, policy: DiagonalGaussian | SquashedGaussian, before: DiagonalGaussian | SquashedGaussian
    ) -> Mapping[str, Distribution]:
        """Return the new mean with the target policy's covariance, and the reverse."""
        (mean, log_std), (mean_before, log_std_before) = policy.parameters, before.parameters
        kind = type(policy)
        return {"mean": kind(mean, log_std_before), "covariance": kind(mean_before, log_std)}

    def candidates(self, view: View) -> Candidates:
        """Return sampled actions, all evaluated in one pass."""
        number = self.num_samples
        policy: Distribution = self.target_pi(view)
        action = policy.sample(self.generator, number)  # (M, N, A)
        rows = self.codec.clip(action).transpose(0, 1).flatten(0, 1)
        values = smallest(self.target_critics(Repeated(view, number), rows)).mean.view(-1, number)
        log_prior = torch.full_like(values[:, :1], -math.log(number))
        return Candidates(policy, log_prior, values, lambda learnt: learnt.log_prob(action)[..., 0].T)

    def values_taken(self, rows: Rows) -> Sequence[Value]:
        """Return the critics' values of the actions taken."""
        values: Sequence[Value] = self.critics(rows.now, rows.action)
        return values
