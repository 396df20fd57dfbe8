"""SAC with quantile critics.

TQC: SAC with quantile critics, whose largest quantiles are dropped from targets.
QRSAC: SAC with quantile critics, whose targets are the distribution of the critic with the smaller mean.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionQuantiles
from pytorchrl.agent.actors.outputs import QuantileValue, Value
from pytorchrl.agent.algorithms.actor_critic.critics import average, of_smallest
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, CountOrZero, Positive


class TQC(SAC):
    """Kuznetsov et al., "Controlling Overestimation Bias with ... Quantile Critics" (arXiv 2005.04269), section 4.

    The error for priorities is the quantile loss, averaged over all critics.

    Args:
        num_quantiles: of each critic's distribution (M).
        num_dropped: number of the largest quantiles dropped from targets, per critic (d).
        kappa: threshold of the quantile Huber loss, beyond which it is linear.

    Raises:
        ValueError: no quantiles would be left.
    """

    unchangeable = frozenset({"num_quantiles", "num_dropped", "kappa"})

    num_critics: Count = 5
    num_quantiles: Count = 25
    num_dropped: CountOrZero = 2
    kappa: Positive = 1.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that some quantiles are left."""
        super().check_hyper_parameters(hyper_parameters)
        number, dropped = hyper_parameters["num_quantiles"], hyper_parameters["num_dropped"]
        if dropped >= number:
            raise ValueError(f"{cls.__name__}: num_dropped must be less than num_quantiles={number}, got {dropped}")

    def losses(self, rows: Rows) -> Losses:
        """Return the quantile Huber loss of the critics, a mean over the quantiles of all (section 4)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        # One loss of all quantiles, so that the target is sorted once.
        values: Value = _mixture(self.critics(rows.now, rows.action))
        loss, errors = values.weighted_loss(rows.weight, target)
        metrics = {"critic_loss": loss.detach(), "alpha": alpha[0]}
        return Losses({self.train_critics: loss}, metrics, rows.per_row(errors))

    def value_for_target(self, values: Sequence[Value]) -> Value:
        """Return the mixture of all critics without its largest quantiles (equation 10)."""
        mixture = _mixture(values)
        kept = len(values) * (self.num_quantiles - self.num_dropped)
        return QuantileValue(mixture.quantiles.sort(1).values[:, :kept], mixture.fractions[:kept], self.kappa)

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """Return the mean of all quantiles, without dropping any (equation 14)."""
        return average(values)

    def critic_head(self) -> Head:
        """Return the critics' head: quantiles of the return."""
        return ActionQuantiles(self.num_quantiles, self.kappa)


class _QuantileMixture(QuantileValue):
    """The quantiles of all critics."""

    def loss(self, target: QuantileValue) -> Tensor:
        """Quantile Huber loss of each row, (B, 1): mean over quantiles, where that of one critic has a sum."""
        return super().loss(target) / self.quantiles.shape[1]


def _mixture(values: Sequence[Any]) -> _QuantileMixture:
    first: QuantileValue = values[0]
    quantiles = torch.cat([value.quantiles for value in values], dim=1)
    return _QuantileMixture(quantiles, first.fractions.repeat(len(values)), first.kappa)


class QRSAC(SAC):
    """Wurman et al., "Outracing champion Gran Turismo drivers with deep reinforcement learning" (Nature 602), methods.

    The paper's windows of seven steps are a setting of the storage, ``n_step=7``. The error for priorities is the
    quantile loss, averaged over all critics.

    Args:
        num_quantiles: of each critic's distribution (M).
        kappa: threshold of the quantile Huber loss, beyond which it is linear.
    """

    unchangeable = frozenset({"num_quantiles", "kappa"})

    num_quantiles: Count = 32
    kappa: Positive = 1.0

    def value_for_target(self, values: Sequence[Any]) -> Value:
        """Return, in each row, the distribution of the critic with the smallest mean."""
        first: QuantileValue = values[0]
        quantiles = of_smallest([value.mean for value in values], [value.quantiles for value in values])
        return QuantileValue(quantiles, first.fractions, first.kappa)

    def critic_head(self) -> Head:
        """Return the critics' head: quantiles of the return."""
        return ActionQuantiles(self.num_quantiles, self.kappa)
