"""QR-DQN: the distribution of returns by its quantiles."""

from typing import ClassVar

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import QuantileReturns
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, Positive


class QRDQN(DQN):
    """Dabney et al., "Distributional Reinforcement Learning with Quantile Regression" (arXiv 1710.10044).

    Args:
        num_quantiles: of each action's return.
        kappa: errors beyond it count linearly in the quantile Huber loss (equation 10).
    """

    unchangeable = DQN.unchangeable | {"num_quantiles", "kappa"}

    num_quantiles: Count = 200
    kappa: Positive = 1.0
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # kappa is that of quantiles

    def head(self) -> Head:
        """Quantiles in the place of expected values."""
        return QuantileReturns(self.num_quantiles, self.kappa)
