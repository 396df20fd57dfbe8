"""The clipped surrogate objective of PPO, from log probabilities, or from the logits of categorical distributions.

From logits, one compiled call computes objective, metrics and gradients, for which torch takes forty operations.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numba.np.numpy_support import carray
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from pytorchrl.agent.ops.dispatch import MOST_THREADS, are_ordinary, is_recorded, new_results
from storages.core.kernels.compilation import inlined_kernel, parallel_kernel
from storages.core.kernels.memory import pointer, store_float32

_LEAST_EXPONENT = np.float32(-87.3)
_LOG2_OF_E, _LN2_HIGH, _LN2_LOW = map(np.float32, (1.44269504, 0.693359375, -2.12194440e-4))
_E2, _E3, _E4 = map(np.float32, (0.5, 0.16666667, 4.1665796e-2))
_E5, _E6, _E7 = map(np.float32, (8.3334519e-3, 1.3981999e-3, 1.9875691e-4))
_ONE, _ZERO, _HALF = np.float32(1.0), np.float32(0.0), np.float32(0.5)

_MOST_ACTIONS = 32
"""Number of actions beyond which torch is as fast, which computes several exponentials at a time."""


class ClippedSurrogate(NamedTuple):
    """The clipped surrogate of a batch; each a weighted sum over rows."""

    objective: Tensor
    """(), to maximise, with a gradient."""
    entropy: Tensor
    """(), of the policy in nats, with a gradient."""
    divergence: Tensor
    """(), estimate of the KL divergence from the older policy, without a gradient."""
    clip_fraction: Tensor
    """(), share of the rows whose ratio is clipped."""


def clipped_surrogate(
    log_prob: Tensor,
    entropy: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    share: Tensor,
    clip_param: float,
    dual_clip: float | None = None,
) -> ClippedSurrogate:
    """Compute Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), equation 7.

    Args:
        log_prob: (N, 1), of the actions taken.
        entropy: (N, 1), of the policy.
        old_log_prob: (N, 1), of the actions when they were taken.
        advantage: (N, 1), of the actions.
        share: (N, 1), weight of each row; sums to 1.
        clip_param: clipping range of the probability ratio (epsilon).
        dual_clip: lower bound of the objective at negative advantages, as a multiple of the advantage (Ye et al.,
            arXiv 1912.09729, equation 5); None for no bound.
    """
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
    objective = torch.minimum(ratio * advantage, clipped_ratio * advantage)
    if dual_clip is not None:
        least = torch.where(advantage < 0, dual_clip * advantage, -torch.inf)
        objective = torch.maximum(objective, least)
    with torch.no_grad():
        # Schulman's "k3" estimate of the KL divergence: unbiased, non-negative, of low variance.
        divergence = (share * (ratio - 1 - log_ratio)).sum()
        clip_fraction = (share * (clipped_ratio != ratio)).sum()
    return ClippedSurrogate((share * objective).sum(), (share * entropy).sum(), divergence, clip_fraction)


def clipped_surrogate_of_logits(
    logits: Tensor,
    action: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    share: Tensor,
    clip_param: float,
    dual_clip: float | None = None,
) -> ClippedSurrogate | None:
    """As :func:`clipped_surrogate`, of actions (N, 1) under logits (N, k); None where torch has to compute it."""
    if is_recorded() or logits.dim() != 2 or torch.get_num_threads() > MOST_THREADS:
        return None
    rows, count = logits.shape
    if not (0 < count <= _MOST_ACTIONS and action.shape == (rows, 1) and action.dtype is torch.int64):
        return None
    given = old_log_prob, advantage, share
    for each in given:
        if each.shape != (rows, 1) or each.requires_grad or each.dtype is not torch.float32:
            return None
    for each in (logits, action, *given):
        if not (each.is_cpu and each.is_contiguous()):
            return None
    if logits.dtype is not torch.float32 or not are_ordinary(logits, action, *given):
        return None
    settings = 1 - clip_param, 1 + clip_param, 0.0 if dual_clip is None else dual_clip
    return ClippedSurrogate(*_OfLogits.apply(logits, action, *given, *settings))  # type: ignore[no-untyped-call]


class _OfLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, *given: Any) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        action, old_log_prob, advantage, share, *settings = given
        rows, count = logits.shape
        slopes, entropy = new_results((2, rows, count)), new_results(())
        objective, divergence, clip_fraction = new_results(()), new_results(()), new_results(())
        exist = _evaluate(
            logits.data_ptr(),
            action.data_ptr(),
            old_log_prob.data_ptr(),
            advantage.data_ptr(),
            share.data_ptr(),
            slopes.data_ptr(),
            objective.data_ptr(),
            entropy.data_ptr(),
            divergence.data_ptr(),
            clip_fraction.data_ptr(),
            rows,
            count,
            *map(np.float32, settings),
        )
        if not exist:
            # Raises an error that names the action that does not exist.
            logits.gather(1, action)
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(divergence, clip_fraction)
        return objective, entropy, divergence, clip_fraction

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_objective: Tensor | None, by_entropy: Tensor | None, *_: Any) -> tuple[Any, ...]:
        (slopes,) = ctx.saved_tensors
        if by_entropy is None:
            slope = None if by_objective is None else by_objective * slopes[0]
        else:
            slope = by_entropy * slopes[1]
            slope = slope if by_objective is None else slope + by_objective * slopes[0]
        return slope, *_NO_GRADIENTS


_NO_GRADIENTS = (None,) * 7


@parallel_kernel
def _evaluate(
    logits_at: int,
    actions_at: int,
    old_log_prob_at: int,
    advantage_at: int,
    share_at: int,
    slopes_at: int,
    objective_at: int,
    entropy_at: int,
    divergence_at: int,
    clip_fraction_at: int,
    rows: int,
    count: int,
    low: Any,
    high: Any,
    least: Any,
) -> bool:
    """Write the sums, and their gradients with respect to the logits; return False if an action does not exist."""
    logits = carray(pointer(logits_at), (rows, count), np.float32)
    actions = carray(pointer(actions_at), rows, np.int64)
    old_log_prob = carray(pointer(old_log_prob_at), rows, np.float32)
    advantage = carray(pointer(advantage_at), rows, np.float32)
    share = carray(pointer(share_at), rows, np.float32)
    by_objective = carray(pointer(slopes_at), (2, rows, count), np.float32)[0]
    by_entropy = carray(pointer(slopes_at), (2, rows, count), np.float32)[1]
    # Overwritten by the gradients, row by row.
    probabilities, log_probs = by_objective, by_entropy
    for row in range(rows):
        if not 0 <= actions[row] < count:
            return False
        largest = logits[row, 0]
        for action in range(1, count):
            # Written so that NaN stays NaN.
            if not logits[row, action] <= largest:
                largest = logits[row, action]
        for action in range(count):
            log_probs[row, action] = logits[row, action] - largest
    _exponentials(log_probs.reshape(-1), probabilities.reshape(-1))
    objective, entropy, divergence, clipped_rows = 0.0, 0.0, 0.0, 0.0
    for row in range(rows):
        total, surprise = _ZERO, _ZERO
        for action in range(count):
            total += probabilities[row, action]
        log_total = np.log(total)
        for action in range(count):
            probability, log_prob = probabilities[row, action] / total, log_probs[row, action] - log_total
            probabilities[row, action], log_probs[row, action] = probability, log_prob
            # An action that is ruled out has a log probability of -inf, and adds nothing.
            if probability != 0:
                surprise -= probability * log_prob
        weight, chosen = share[row], actions[row]
        log_ratio = log_probs[row, chosen] - old_log_prob[row]
        ratio = np.exp(log_ratio)
        near = low if ratio < low else (high if ratio > high else ratio)
        gain, bound = ratio * advantage[row], near * advantage[row]
        slope = gain
        if bound < gain:
            gain, slope = bound, _ZERO
        if least > 0 and advantage[row] < 0 and gain < least * advantage[row]:
            gain, slope = least * advantage[row], _ZERO
        objective += weight * gain
        entropy += weight * surprise
        divergence += weight * (ratio - _ONE - log_ratio)
        if near != ratio:
            clipped_rows += weight
        slope *= weight
        for action in range(count):
            probability = probabilities[row, action]
            # The derivative of the entropy H with respect to a logit is -p * (log p + H).
            falls = probability * (log_probs[row, action] + surprise) if probability != 0 else _ZERO
            by_entropy[row, action] = -weight * falls
            by_objective[row, action] = -slope * probability
        by_objective[row, chosen] += slope
    store_float32(objective_at, objective)
    store_float32(entropy_at, entropy)
    store_float32(divergence_at, divergence)
    store_float32(clip_fraction_at, clipped_rows)
    return True


@inlined_kernel
def _exponentials(numbers: NDArray[np.float32], results: NDArray[np.float32]) -> None:
    """Write the exponentials of numbers that are at most 0, of a relative error of at most 1e-7.

    Unlike the C library's function, the compiler vectorises it. Below the smallest normal number they are 0.
    """
    for position in range(numbers.shape[0]):
        number = numbers[position]
        near = _LEAST_EXPONENT if number < _LEAST_EXPONENT else number
        # e^x is 2^n * e^f with f in [-ln(2) / 2, ln(2) / 2]; ln(2) is subtracted in two parts, the first of which is
        # exact in few bits. The polynomial is that of the Cephes library.
        power = np.floor(near * _LOG2_OF_E + _HALF)
        rest = near - power * _LN2_HIGH - power * _LN2_LOW
        series = ((((_E7 * rest + _E6) * rest + _E5) * rest + _E4) * rest + _E3) * rest + _E2
        factor = series * rest * rest + rest + _ONE
        scale = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
        results[position] = _ZERO if number < _LEAST_EXPONENT else factor * scale
