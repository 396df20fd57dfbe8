"""TRPO: natural policy gradients within a trust region."""

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.algorithms.policy_gradient.conjugate_gradient import conjugate_gradient
from pytorchrl.agent.algorithms.policy_gradient.policy_gradient import PolicyGradient
from pytorchrl.agent.algorithms.results import Metrics, Result
from storages.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import LOGP, RET, Batch


class TRPO(PolicyGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), with a value function and GAE.

    Args:
        lr_value: learning rate of the value function.
        max_kl: how far the policy may diverge in an update.
        damping: added to the Fisher information's diagonal.
        cg_iterations: of the conjugate gradient.
        backtracks: steps tried in the line search, each ``backtrack_ratio`` of the one before.
        backtrack_ratio: see ``backtracks``.
        value_epochs: steps of the value function in an update.
    """

    lr_value: NonNegativeOrSchedule = 1e-3
    max_kl: Positive = 0.01
    damping: NonNegative = 0.1
    cg_iterations: Count = 10
    backtracks: Count = 10
    backtrack_ratio: UnitInterval = 0.8
    value_epochs: Count = 20

    def build(self) -> None:
        """Policy and value function; the value function alone has an optimiser."""
        self.make_networks()
        self.train_value = self.train("value", self.value, lr="lr_value")
        self._parameters = [p for p in self.pi.parameters() if p.requires_grad]

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient, then fit the value function; the batch's targets are fixed."""
        metrics = self._step_policy(batch)
        for _ in range(self.value_epochs):
            rows = self.read(batch)
            value_loss = rows.mean((self.value(rows.now) - rows[RET]).square())
            self.train_value.stepper.zero_grad()
            value_loss.backward()  # type: ignore[no-untyped-call]
            self.train_value.stepper.step()
        self.end_update()
        return Result(metrics | {"value_loss": 0.5 * value_loss.detach()})

    def _step_policy(self, batch: Batch) -> Metrics:
        rows = self.read(batch)
        advantages = self.advantages(rows)
        policy: Distribution = self.pi(rows.now)
        before = policy.detach()
        surrogate = rows.mean((policy.log_prob(rows.action) - rows[LOGP]).exp() * advantages)
        gradient = self._gradient(surrogate)
        kl_gradient = self._gradient(rows.mean(before.kl(policy)), create_graph=True)

        def fisher_times(vector: Tensor) -> Tensor:
            """Appendix C.1: the Hessian of the divergence, which is the Fisher information here, times a vector."""
            return self._gradient(kl_gradient @ vector) + self.damping * vector

        direction = conjugate_gradient(fisher_times, gradient, self.cg_iterations)
        length = (2 * self.max_kl / (direction @ fisher_times(direction)).clamp(min=1e-12)).sqrt()
        fraction, kl = self._line_search(batch, before, advantages, surrogate.detach(), length * direction)
        return {
            "policy_loss": -surrogate.detach(),
            "kl": kl,
            "step_fraction": fraction,
            "entropy": before.entropy().mean(),
        }

    @torch.no_grad()
    def _line_search(
        self, batch: Batch, before: Distribution, advantages: Tensor, surrogate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take the largest fraction of a step that improves the surrogate within the trust region; else none.

        All fractions are tried, so that no device is waited for.

        Returns:
            The fraction, and the divergence after it.
        """
        old = parameters_to_vector(self._parameters)
        fraction, divergence = torch.zeros_like(surrogate), torch.zeros_like(surrogate)
        for tried in reversed([self.backtrack_ratio**number for number in range(self.backtracks)]):
            vector_to_parameters(old + tried * step, self._parameters)
            rows = self.read(batch)
            policy: Distribution = self.pi(rows.now)
            improved = rows.mean((policy.log_prob(rows.action) - rows[LOGP]).exp() * advantages) > surrogate
            kl = rows.mean(before.kl(policy))
            accepted = improved & (kl <= self.max_kl)
            fraction, divergence = torch.where(accepted, tried, fraction), torch.where(accepted, kl, divergence)
        vector_to_parameters(torch.where(fraction > 0, old + fraction * step, old), self._parameters)
        return fraction, divergence

    def _gradient(self, value: Tensor, create_graph: bool = False) -> Tensor:
        """(P,): with respect to the policy's parameters, side by side."""
        gradients = torch.autograd.grad(value, self._parameters, create_graph=create_graph, retain_graph=True)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])
