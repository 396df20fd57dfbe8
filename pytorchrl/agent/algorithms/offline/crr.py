"""CRR: a policy that imitates those of the data's actions that a critic prefers to its own."""

from typing import Literal

from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, GaussianPolicy
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.offline.parts.weighted_regression import SampledAdvantage
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Positive


class CRR(SampledAdvantage):
    """Wang et al., "Critic Regularized Regression" (arXiv 2006.15134), equations 2 to 4.

    Args:
        weighting: "exp" weighs actions by the exponential of their advantage, "binary" takes those alone whose
            advantage is positive.
        compared_with: the "mean" or the largest ("max") value of the policy's actions, which advantages are over.
        temperature: advantage that makes a weight e times as large (beta), of "exp".
        max_weight: the largest weight, of "exp".
    """

    num_critics: Count = 1
    num_samples: Count = 4
    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, min_log_std=-5.0)
    weighting: Literal["exp", "binary"] = "exp"
    compared_with: Literal["mean", "max"] = "mean"
    temperature: Positive = 1.0
    max_weight: Positive = 20.0

    def build_targets(self) -> None:
        """Copies of policy and critics that follow them."""
        super().build_targets()
        self.target_pi = self.target(self.pi)

    def next_value(self, rows: Rows) -> ScalarValue:
        """Of one action drawn from the target policy in each next state."""
        return self.value_of_policy(self.target_pi(rows.next), rows.next)

    def baseline(self, values: Tensor) -> Tensor:
        """(N, 1): the mean or the largest of the values (N, M) of the policy's actions."""
        return values.amax(1, keepdim=True) if self.compared_with == "max" else super().baseline(values)

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """(N, 1): 1 for what is better, or exponentials up to the largest weight."""
        if self.weighting == "binary":
            return (advantage > 0).float()
        return (advantage / self.temperature).exp().clamp(max=self.max_weight)
