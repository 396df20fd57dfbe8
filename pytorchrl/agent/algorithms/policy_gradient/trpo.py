"""TRPO: natural policy gradients within a trust region, with a value function."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from pytorchrl.agent.algorithms.policy_gradient.parts.natural_gradient import NaturalGradient
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueRegression
from pytorchrl.agent.algorithms.results import Metrics, Result
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule
from storages.storage import Storage
from storages.transition import RET, Batch


class TRPO(NaturalGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), with a value function and GAE.

    Args:
        lr_value: learning rate of the value function.
        value_epochs: epochs of the value function per update.
        value_mini_batches: minibatches per rollout for the value function, with one optimiser step each.
    """

    lr_value: NonNegativeOrSchedule = 3e-3
    value_epochs: Count = 40
    value_mini_batches: Count = 1

    def build(self) -> None:
        """Make policy and value function; only the value function has an optimiser."""
        if self.actor.shared_body:
            raise ValueError(
                "TRPO: a step of the value function would move the policy out of its trust region where they share a "
                "body; give the actor shared_body=False"
            )
        super().build()
        self.train_value = self.train("value", self.value, lr="lr_value", by_loss=True)
        self.value_regression = ValueRegression(self.value, self.train_value, with_graph=False)

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Run one update phase, with minibatch steps of the value function after each policy step."""
        for metrics in super().update_phase(sources):
            yield metrics | self._fit_to_mini_batches(sources["main"])

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient, then fit the value function to the fixed returns."""
        result = super().update(batch)
        if self.value_mini_batches > 1:
            return result
        for _ in range(self.value_epochs):
            value_loss = self._fit(batch)
        return Result(result.metrics | {"value_loss": value_loss})

    def _fit_to_mini_batches(self, rollout: Storage) -> Metrics:
        if self.value_mini_batches == 1:
            return {}
        for batch in rollout.generate_batches(self.value_mini_batches, None, self.value_epochs):
            value_loss = self._fit(batch)
        return {"value_loss": value_loss}

    def _fit(self, batch: Batch) -> Tensor:
        return self.train_value.stepper.minimise(lambda: self._value_loss(batch))

    def _value_loss(self, batch: Batch) -> Tensor:
        rows = self.read(batch)
        fit = self.value_regression(rows[RET], rows)
        for parameter, gradient in fit.gradients.items():
            parameter.grad = gradient
        return fit.loss
