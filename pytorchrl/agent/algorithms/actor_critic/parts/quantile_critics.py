"""Base class of SAC with critics that estimate quantiles of the return."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionQuantiles
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from storages.component.hyper_parameters import Count, Positive


class QuantileCritics(SAC):
    """SAC whose critics estimate quantiles of the return's distribution.

    The error for priorities is the quantile loss, averaged over all critics.

    Args:
        num_quantiles: of each critic's distribution (M).
        kappa: threshold of the quantile Huber loss, beyond which it is linear.
    """

    unchangeable = frozenset({"num_quantiles", "kappa"})

    num_quantiles: Count = 25
    kappa: Positive = 1.0

    def critic_head(self) -> Head:
        """Return the critics' head: quantiles of the return."""
        return ActionQuantiles(self.num_quantiles, self.kappa)
