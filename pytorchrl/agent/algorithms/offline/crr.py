"""CRR: critic-regularised regression, behaviour cloning filtered or weighted by advantages."""

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
        weighting: "exp" weights actions by their exponentiated advantage; "binary" takes only actions of positive
            advantage.
        compared_with: baseline of advantages: the "mean" or the largest ("max") value of the policy's actions.
        temperature: divides advantages in the weights of "exp" (beta).
        max_weight: the largest weight of "exp".
    """

    num_critics: Count = 1
    num_samples: Count = 4
    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, min_log_std=-5.0)
    weighting: Literal["exp", "binary"] = "exp"
    compared_with: Literal["mean", "max"] = "mean"
    temperature: Positive = 1.0
    max_weight: Positive = 20.0

    def build_targets(self) -> None:
        """Make the target policy and the target critics."""
        super().build_targets()
        self.target_pi = self.target(self.pi)

    def next_value(self, rows: Rows) -> ScalarValue:
        """Return the value of one action sampled from the target policy in each next state."""
        return self.value_of_policy(self.target_pi(rows.next), rows.next)

    def baseline(self, values: Tensor) -> Tensor:
        """Return the mean or maximum (N, 1) of the values (N, M) of the policy's actions."""
        return values.amax(1, keepdim=True) if self.compared_with == "max" else super().baseline(values)

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return binary weights (N, 1), or exponential ones up to ``max_weight``."""
        if self.weighting == "binary":
            return (advantage > 0).float()
        return (advantage / self.temperature).exp().clamp(max=self.max_weight)
