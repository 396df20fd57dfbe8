"""TQC: SAC with quantile critics, whose largest quantiles are dropped from targets."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import QuantileValue, Value
from pytorchrl.agent.algorithms.actor_critic.parts.critics import average
from pytorchrl.agent.algorithms.actor_critic.parts.quantile_critics import QuantileCritics
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, CountOrZero


class TQC(QuantileCritics):
    """Kuznetsov et al., "Controlling Overestimation Bias with ... Quantile Critics" (arXiv 2005.04269), section 4.

    Args:
        num_dropped: number of the largest quantiles dropped from targets, per critic (d).

    Raises:
        ValueError: no quantiles would be left.
    """

    unchangeable = frozenset({"num_dropped"})

    num_critics: Count = 5
    num_dropped: CountOrZero = 2

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that some quantiles are left."""
        super().check_hyper_parameters(hyper_parameters)
        number, dropped = hyper_parameters["num_quantiles"], hyper_parameters["num_dropped"]
        if dropped >= number:
            raise ValueError(f"{cls.__name__}: num_dropped must be less than num_quantiles={number}, got {dropped}")

    def values_of_taken(self, outputs: Sequence[Value], rows: Rows) -> Sequence[Value]:
        """Return the concatenated quantiles of all critics, so that one loss sorts the target once."""
        return [_mixture(outputs)]

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """Return the mean of all quantiles, without dropping any (equation 14)."""
        return average(values)

    def value_for_target(self, values: Sequence[Value]) -> Value:
        """Return the mixture of all critics without its largest quantiles (equation 10)."""
        mixture = _mixture(values)
        kept = len(values) * (self.num_quantiles - self.num_dropped)
        return QuantileValue(mixture.quantiles.sort(1).values[:, :kept], mixture.fractions[:kept], self.kappa)


class _Mixture(QuantileValue):
    """The quantiles of all critics."""

    def loss(self, target: QuantileValue) -> Tensor:
        """Quantile Huber loss of each row, (B, 1): mean over quantiles, where that of one critic has a sum."""
        return super().loss(target) / self.quantiles.shape[1]


def _mixture(values: Sequence[Any]) -> _Mixture:
    first: QuantileValue = values[0]
    quantiles = torch.cat([value.quantiles for value in values], dim=1)
    return _Mixture(quantiles, first.fractions.repeat(len(values)), first.kappa)
