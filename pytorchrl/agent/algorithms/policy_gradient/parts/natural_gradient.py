"""Base class of natural policy gradients within a trust region."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.algorithms.policy_gradient.parts.conjugate_gradient import conjugate_gradient
from pytorchrl.agent.algorithms.policy_gradient.parts.policy_gradient import PolicyGradient
from pytorchrl.agent.algorithms.results import Metrics, Result
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import FlatParameters
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval
from storages.transition import LOGP, Batch

_SMALLEST_CURVATURE = 1e-12


class NaturalGradient(PolicyGradient):
    """Natural policy gradient with a line search in a KL trust region, on full batches.

    Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), sections 5 and 6 and appendix C.

    Args:
        max_kl: the largest KL divergence of an update (delta).
        damping: added to the diagonal of the Fisher information matrix.
        cg_iterations: iterations of the conjugate gradient method.
        backtracks: step sizes tried in the line search, each ``backtrack_ratio`` times the one before.
        backtrack_ratio: see ``backtracks``.
    """

    max_kl: NonNegativeOrSchedule = 0.01
    damping: NonNegative = 0.1
    cg_iterations: Count = 10
    backtracks: Count = 10
    backtrack_ratio: UnitInterval = 0.8

    def build(self) -> None:
        """Make the networks; the policy has no optimiser.

        Raises:
            ValueError: outputs of the actor's networks are random, or depend on the other rows of a batch.
        """
        for name in ("noisy", "batch_norm", "dropout"):
            if getattr(self.actor, name):
                raise ValueError(
                    f"{type(self).__name__}: the line search compares outputs of the policy before and after a step, "
                    f"which {name} changes at each call; leave it out of the actor"
                )
        self.make_networks()
        self._weights = FlatParameters(p for p in self.pi.parameters() if p.requires_grad)

    def update(self, batch: Batch) -> Result:
        """Step the policy along the natural gradient."""
        metrics = self._step_policy(batch)
        self.end_update()
        return Result(metrics)

    def _step_policy(self, batch: Batch) -> Metrics:
        self._weights.check()
        rows = self.read(batch)
        advantages = self.advantages(rows)
        policy: Distribution = self.pi(rows.now)
        # A copy, as its tensors may be parameters (such as a log_std), which the line search modifies in place.
        before = copy.deepcopy(policy.detach())
        surrogate = self._surrogate(policy, rows, advantages)
        gradient = self._gradient(surrogate)
        fisher_times = self._fisher_product(rows, policy)
        direction = conjugate_gradient(fisher_times, gradient, self.cg_iterations)
        curvature = (direction @ fisher_times(direction)).clamp(min=_SMALLEST_CURVATURE)
        # The longest step within the trust region by the quadratic approximation of the divergence (appendix C).
        step = (2 * self.current(self.max_kl) / curvature).sqrt() * direction
        fraction, kl = self._line_search(batch, before, advantages, surrogate.detach(), step)
        return {
            "policy_loss": -surrogate.detach(),
            "kl": kl,
            "step_fraction": fraction,
            "entropy": rows.mean(before.entropy()),
        }

    def _fisher_product(self, rows: Rows, policy: Distribution) -> Callable[[Tensor], Tensor]:
        """Return the product of the damped Fisher information matrix with vectors (P,): appendix C.1.

        The matrix is the Hessian of the KL divergence from the current policy, at the current policy.
        """
        kl_gradients = self._gradients(rows.mean(policy.detach().kl(policy)), create_graph=True)

        def fisher_times(vector: Tensor) -> Tensor:
            views = self._weights.views_of(vector)
            slopes = [(gradient * view).sum() for gradient, view in zip(kl_gradients, views, strict=True)]
            return self._gradient(torch.stack(slopes).sum()) + self.damping * vector

        return fisher_times

    def _surrogate(self, policy: Distribution, rows: Rows, advantages: Tensor) -> Tensor:
        """Return the surrogate advantage of a policy, equation 14."""
        ratio = (policy.log_prob(rows.action) - rows[LOGP]).exp()
        return rows.mean(ratio * advantages)

    @torch.no_grad()
    def _line_search(
        self, batch: Batch, before: Distribution, advantages: Tensor, surrogate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take the largest fraction of a step that improves the surrogate within the trust region; else none.

        On other devices than the CPU, all fractions are tried, which avoids synchronising with the device.

        Returns:
            The fraction, and the KL divergence after the step.
        """
        weights = self._weights.vector
        old, best = weights.clone(), weights.clone()
        max_kl = self.current(self.max_kl)
        fraction, divergence = torch.zeros_like(surrogate), torch.zeros_like(surrogate)
        for tried in (self.backtrack_ratio**number for number in range(self.backtracks)):
            torch.add(old, step, alpha=tried, out=weights)
            rows = self.read(batch)
            policy: Distribution = self.pi(rows.now)
            kl = rows.mean(before.kl(policy))
            improves = (self._surrogate(policy, rows, advantages) > surrogate) & (kl <= max_kl)
            accepted = improves & (fraction == 0)
            best = torch.where(accepted, weights, best)
            fraction, divergence = torch.where(accepted, tried, fraction), torch.where(accepted, kl, divergence)
            if accepted.is_cpu and accepted:
                break
        weights.copy_(best)
        return fraction, divergence

    def _gradient(self, value: Tensor) -> Tensor:
        """Return the gradient (P,) of a scalar by the flat vector of the policy's weights."""
        vector, views = self._weights.empty_vector()
        torch._foreach_copy_(views, self._gradients(value))
        return vector

    def _gradients(self, value: Tensor, create_graph: bool = False) -> tuple[Tensor, ...]:
        weights = self._weights.parameters
        return torch.autograd.grad(value, weights, create_graph=create_graph, retain_graph=True, materialize_grads=True)
