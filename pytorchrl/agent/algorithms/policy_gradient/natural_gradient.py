"""Steps of a policy along the natural gradient of a surrogate objective, within a trust region of the KL divergence.

Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), sections 5 and 6 and appendix C.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.per_network import values_of_setting
from pytorchrl.agent.algorithms.policy_gradient.fisher_products import conjugate_gradient, fisher_product, gradient_of
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.optimizers import FlatParameters

EvaluatePolicy: TypeAlias = Callable[[], tuple[Distribution, Tensor]]
"""Returns the policy at the current weights, and its surrogate objective (), to be maximised."""
Mean: TypeAlias = Callable[[Tensor], Tensor]
"""From values (N, 1) of the rows to their mean ()."""

_SMALLEST_CURVATURE = 1e-12


class TrustRegion(NamedTuple):
    """The size of a step, and how it is found; see the hyper-parameters of `TRPO`."""

    max_kl: float
    damping: float
    cg_iterations: int
    backtracks: int
    backtrack_ratio: float


def natural_gradient_step(
    weights: FlatParameters,
    evaluate: EvaluatePolicy,
    mean: Mean,
    region: TrustRegion,
    fisher_times: Callable[[Tensor], Tensor] | None = None,
) -> Metrics:
    """Step the weights along the natural gradient.

    Args:
        weights: of the policy.
        evaluate: evaluates the policy on a batch.
        mean: of the rows of that batch.
        region: that the policy stays in.
        fisher_times: multiplies a vector (P,) with the damped Fisher information matrix at the present weights; None
            evaluates the whole batch at once.
    """
    weights.check()
    policy, surrogate = evaluate()
    # A copy, as its tensors may be parameters (such as a log_std), which the line search modifies in place.
    before = copy.deepcopy(policy.detach())
    if weights.are_frozen:
        none = torch.zeros_like(surrogate)  # of a frozen policy
        return {"policy_loss": -surrogate, "kl": none, "step_fraction": none, "entropy": mean(before.entropy())}
    gradient = gradient_of(surrogate, weights)
    if fisher_times is None:
        fisher_times = fisher_product(mean(policy.detach().kl(policy)), weights, region.damping)
    direction = conjugate_gradient(fisher_times, gradient, region.cg_iterations)
    curvature = (direction @ fisher_times(direction)).clamp(min=_SMALLEST_CURVATURE)
    # The longest step within the trust region by the quadratic approximation of the divergence (appendix C).
    step = (2 * region.max_kl / curvature).sqrt() * direction
    fraction, kl = line_search(weights, evaluate, mean, before, surrogate.detach(), step, region)
    return {
        "policy_loss": -surrogate.detach(),
        "kl": kl,
        "step_fraction": fraction,
        "entropy": mean(before.entropy()),
    }


@torch.no_grad()
def line_search(
    weights: FlatParameters,
    evaluate: EvaluatePolicy,
    mean: Mean,
    before: Distribution,
    surrogate: Tensor,
    step: Tensor,
    region: TrustRegion,
) -> tuple[Tensor, Tensor]:
    """Take the largest fraction of a step that improves the surrogate within the trust region; else none.

    On other devices than the CPU, all fractions are tried, which avoids synchronising with the device.

    Args:
        weights: of the policy, which are changed.
        evaluate: evaluates the policy.
        mean: of the rows.
        before: the policy before the step.
        surrogate: (), before the step.
        step: (P,), the longest.
        region: that the policy stays in.

    Returns:
        The fraction, and the KL divergence after the step.
    """
    old, best = weights.vector.clone(), weights.vector.clone()
    fraction, divergence = torch.zeros_like(surrogate), torch.zeros_like(surrogate)
    for tried in (region.backtrack_ratio**number for number in range(region.backtracks)):
        torch.add(old, step, alpha=tried, out=weights.vector)
        policy, improved = evaluate()
        kl = mean(before.kl(policy))
        accepted = (improved > surrogate) & (kl <= region.max_kl) & (fraction == 0)
        best = torch.where(accepted, weights.vector, best)
        fraction, divergence = torch.where(accepted, tried, fraction), torch.where(accepted, kl, divergence)
        if accepted.is_cpu and accepted:
            break
    weights.vector.copy_(best)
    return fraction, divergence


def refuse_random_outputs(actor: Actor, owner: str) -> None:
    """Refuse an actor whose outputs are random, or depend on the other rows of a batch.

    Raises:
        ValueError: the message names the owner, an algorithm, and the setting of the actor.
    """
    for name in ("noisy", "batch_norm", "dropout"):
        if any(values_of_setting(actor, name)):
            raise ValueError(
                f"{owner}: the line search compares outputs of the policy before and after a step, which {name} "
                f"changes at each call; leave it out of the actor"
            )
