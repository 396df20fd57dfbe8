"""TRPO: natural policy gradients within a trust region, with a value function."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from torch import Tensor

from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.fisher_products import fisher_product_in_pieces
from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import (
    TrustRegion,
    natural_gradient_step,
    refuse_random_outputs,
)
from pytorchrl.agent.algorithms.results import Losses, Metrics, Result
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import FlatParameters
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval
from storages.storage import Storage
from storages.transition import LOGP, RET, Batch


class TRPO(PolicyGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), with a value function and GAE.

    Args:
        max_kl: the largest KL divergence of an update (delta).
        damping: added to the diagonal of the Fisher information matrix.
        cg_iterations: iterations of the conjugate gradient method.
        backtracks: step sizes tried in the line search, each ``backtrack_ratio`` times the one before.
        backtrack_ratio: see ``backtracks``.
        entropy_coef: weight of an entropy bonus in the surrogate.
        fisher_mini_batch_size: rows of a batch that are in memory at once in products with the Fisher information
            matrix, which need the most; the policy is then evaluated again for each product. None for all.
        lr_value: learning rate of the value function.
        value_epochs: epochs of the value function per update.
        value_mini_batches: minibatches per rollout for the value function, with one optimiser step each.
    """

    unused: ClassVar[Mapping[str, str]] = {
        "losses_after_step": "override surrogate or losses",
        "minimise": "override update",
        "apply_gradients": "override update",
    }
    max_kl: NonNegativeOrSchedule = 0.01
    damping: NonNegative = 0.1
    cg_iterations: Count = 10
    backtracks: Count = 10
    backtrack_ratio: UnitInterval = 0.8
    entropy_coef: NonNegative = 0.0
    fisher_mini_batch_size: Count | None = None
    lr_value: NonNegativeOrSchedule = 3e-3
    value_epochs: Count = 40
    value_mini_batches: Count = 1

    def build(self) -> None:
        """Make policy and value function; only the value function has an optimiser.

        Raises:
            ValueError: outputs of the actor's networks are random, or depend on other rows; or both share a body.
        """
        refuse_random_outputs(self.actor, type(self).__name__)
        if self.actor.shared_body:
            raise ValueError(
                "TRPO: a step of the value function would move the policy out of its trust region where they share a "
                "body; give the actor shared_body=False"
            )
        self.make_networks()
        self._weights = FlatParameters(p for p in self.pi.parameters() if p.requires_grad)
        self.train_value = self.train("value", self.value, lr="lr_value", by_loss=True)

    def surrogate(self, batch: Batch) -> tuple[Distribution, Tensor]:
        """Return the policy and its surrogate advantage () (equation 14), which the step of the policy increases."""
        rows = self.read(batch)
        policy = self.policy(rows.now, None)
        ratio = (policy.log_prob(rows.action) - rows[LOGP]).exp()
        surrogate = rows.mean(ratio * self.advantages(rows))
        if self.entropy_coef:
            surrogate = surrogate + self.entropy_coef * rows.mean(policy.entropy())
        return policy, surrogate

    def losses(self, rows: Rows) -> Losses:
        """Return the value function's loss; the policy has no optimiser, but steps by its :meth:`surrogate`."""
        error = self.value(rows.now) - rows[RET]
        return Losses({self.train_value: 0.5 * rows.mean(error.square())})

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Run one update phase, with minibatch steps of the value function after each policy step."""
        for metrics in super().update_phase(sources):
            if self.value_mini_batches > 1:
                for batch in sources["main"].generate_batches(self.value_mini_batches, None, self.value_epochs):
                    value_loss = self._fit_value(batch)
                metrics = {**metrics, "value_loss": value_loss}
            yield metrics

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient, then fit the value function to the fixed returns."""
        region = TrustRegion(
            self.current(self.max_kl), self.damping, self.cg_iterations, self.backtracks, self.backtrack_ratio
        )
        size = self.fisher_mini_batch_size
        fisher = None if size is None else fisher_product_in_pieces(batch, size, self, self._weights, self.damping)
        metrics = natural_gradient_step(
            self._weights, partial(self.surrogate, batch), self.read(batch).mean, region, fisher
        )
        self.end_update()
        if self.value_mini_batches == 1:
            for _ in range(self.value_epochs):
                metrics["value_loss"] = self._fit_value(batch)
        return Result(metrics)

    def _fit_value(self, batch: Batch) -> Tensor:
        value = self.train_value
        return value.minimise(self, lambda: self._computed_losses(self.read(batch)).of[value])

    def compute_gradients(self, batch: Batch) -> tuple[dict[str, Tensor], Result]:
        """Refuse: the policy's step is found by a line search.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"{type(self).__name__} finds the step of its policy by a line search, so that gradients cannot be "
            f"computed separately from an update"
        )
