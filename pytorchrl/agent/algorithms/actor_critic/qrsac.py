"""QRSAC: SAC with quantile critics, whose targets are the distribution of the critic with the smaller mean."""

from collections.abc import Sequence
from typing import Any

from pytorchrl.agent.actors.outputs import QuantileValue, Value
from pytorchrl.agent.algorithms.actor_critic.parts.critics import of_smallest
from pytorchrl.agent.algorithms.actor_critic.parts.quantile_critics import QuantileCritics
from storages.component.hyper_parameters import Count


class QRSAC(QuantileCritics):
    """Wurman et al., "Outracing champion Gran Turismo drivers with deep reinforcement learning" (Nature 602), methods.

    The paper's windows of seven steps are a setting of the storage, ``n_step=7``.
    """

    num_quantiles: Count = 32

    def value_for_target(self, values: Sequence[Value]) -> Value:
        """Return, in each row, the distribution of the critic with the smallest mean."""
        return _of_smallest_mean(values)


def _of_smallest_mean(values: Sequence[Any]) -> QuantileValue:
    first: QuantileValue = values[0]
    quantiles = of_smallest([value.mean for value in values], [value.quantiles for value in values])
    return QuantileValue(quantiles, first.fractions, first.kappa)
