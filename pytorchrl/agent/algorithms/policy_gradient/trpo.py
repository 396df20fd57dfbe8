"""TRPO: natural policy gradients within a trust region, with a value function."""

from torch import Tensor

from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import NaturalGradient
from pytorchrl.agent.algorithms.results import Result
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule
from storages.transition import RET, Batch


class TRPO(NaturalGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), with a value function and GAE.

    Args:
        lr_value: learning rate of the value function.
        value_epochs: steps of the value function in an update.
    """

    lr_value: NonNegativeOrSchedule = 3e-3
    value_epochs: Count = 40

    def build(self) -> None:
        """Policy and value function; the value function alone has an optimiser."""
        if self.actor.shared_body:
            raise ValueError(
                "TRPO: a step of the value function would move the policy out of its trust region where they share a "
                "body; give the actor shared_body=False"
            )
        super().build()
        self.train_value = self.train("value", self.value, lr="lr_value", by_loss=True)

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient, then fit the value function; the batch's targets are fixed."""
        result = super().update(batch)
        for _ in range(self.value_epochs):
            value_loss = self.train_value.stepper.minimise(lambda: self._value_loss(batch))
        return Result(result.metrics | {"value_loss": value_loss})

    def _value_loss(self, batch: Batch) -> Tensor:
        rows = self.read(batch)
        return 0.5 * rows.mean((self.value(rows.now) - rows[RET]).square())
