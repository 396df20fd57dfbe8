"""QR-DQN: distributional DQN by quantile regression."""

from typing import ClassVar

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import QuantileReturns
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, Positive


class QRDQN(DQN):
    """Dabney et al., "Distributional Reinforcement Learning with Quantile Regression" (arXiv 1710.10044).

    The paper's algorithm 1 selects next actions with the target network, as ``double=False`` does.

    Args:
        num_quantiles: per action.
        kappa: threshold of the quantile Huber loss, beyond which it is linear (equation 10).
    """

    unchangeable = frozenset({"num_quantiles", "kappa"})

    num_quantiles: Count = 200
    kappa: Positive = 1.0
    huber_threshold: ClassVar[None] = None  # type: ignore[misc]  # kappa takes its place

    def head(self) -> Head:
        """Return a head with the quantiles of each action's return."""
        return QuantileReturns(self.num_quantiles, self.kappa)
