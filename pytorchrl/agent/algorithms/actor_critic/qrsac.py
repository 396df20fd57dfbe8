"""QRSAC: SAC with quantile critics, whose targets are the distribution of the critic with the smaller mean."""

from collections.abc import Sequence
from typing import Any

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionQuantiles
from pytorchrl.agent.actors.outputs import QuantileValue, Value
from pytorchrl.agent.algorithms.actor_critic.critics import of_smallest
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from storages.component.hyper_parameters import Count, Positive


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
