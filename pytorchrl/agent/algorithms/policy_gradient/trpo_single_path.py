"""Single-path TRPO: natural policy gradients on Monte Carlo returns, without a value function."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from torch import Tensor

from pytorchrl.agent.actors.heads import in_units_of_environments
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.fisher_pieces import fisher_product_in_pieces
from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import (
    TrustRegion,
    natural_gradient_step,
    refuse_random_outputs,
)
from pytorchrl.agent.algorithms.results import Result
from pytorchrl.agent.optimizers import FlatParameters
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval
from storages.transition import LOGP, Batch


class TRPOSinglePath(PolicyGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), section 5.1.

    Action values are Monte Carlo returns. Without a value function, truncated episodes cannot bootstrap, so the storage
    must drop them.

    Args:
        max_kl: the largest KL divergence of an update (delta).
        damping: added to the diagonal of the Fisher information matrix.
        cg_iterations: iterations of the conjugate gradient method.
        backtracks: step sizes tried in the line search, each ``backtrack_ratio`` times the one before.
        backtrack_ratio: see ``backtracks``.
        entropy_coef: weight of an entropy bonus in the surrogate.
        fisher_mini_batch_size: rows of a batch that are in memory at once in products with the Fisher information
            matrix, which need the most; the policy is then evaluated anew for each product. None for all.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", values=False)}

    unused: ClassVar[Mapping[str, str]] = {
        "losses": "override surrogate",
        "losses_after_step": "override surrogate",
        "minimise": "override update",
        "apply_gradients": "override update",
    }
    normalize_advantages = False
    max_kl: NonNegativeOrSchedule = 0.01
    damping: NonNegative = 1e-3
    cg_iterations: Count = 10
    backtracks: Count = 10
    backtrack_ratio: UnitInterval = 0.8
    entropy_coef: NonNegative = 0.0
    fisher_mini_batch_size: Count | None = None

    def build(self) -> None:
        """Make the policy, which has no optimiser.

        Raises:
            ValueError: outputs of the actor's networks are random, or depend on the other rows of a batch.
        """
        refuse_random_outputs(self.actor, type(self).__name__)
        self.make_networks()
        self._weights = FlatParameters(p for p in self.pi.parameters() if p.requires_grad)

    def make_networks(self) -> tuple[Network, ...]:
        """Make the policy only."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        return (self.pi,)

    def surrogate(self, batch: Batch) -> tuple[Distribution, Tensor]:
        """Return the policy and its surrogate advantage () (equation 14), which an update increases."""
        rows = self.read(batch)
        policy = self.policy(rows.now, None)
        ratio = (policy.log_prob(rows.action) - rows[LOGP]).exp()
        surrogate = rows.mean(ratio * self.advantages(rows))
        if self.entropy_coef:
            surrogate = surrogate + self.entropy_coef * rows.mean(policy.entropy())
        return policy, surrogate

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient of its :meth:`surrogate`."""
        region = TrustRegion(
            self.current(self.max_kl), self.damping, self.cg_iterations, self.backtracks, self.backtrack_ratio
        )
        size = self.fisher_mini_batch_size
        fisher = None if size is None else fisher_product_in_pieces(batch, size, self, self._weights, self.damping)
        metrics = natural_gradient_step(
            self._weights, partial(self.surrogate, batch), self.read(batch).mean, region, fisher
        )
        self.end_update()
        return Result(metrics)

    def value_functions(self) -> Mapping[str, Network]:
        """Return none: the storage's advantages are returns."""
        return {}
