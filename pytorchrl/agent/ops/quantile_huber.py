"""The quantile Huber loss, computed from all pairs of quantiles, or from sorted ones where there are many."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pytorchrl.agent.ops.dispatch import are_ordinary, is_recorded

_FEW_PAIRS = 2_000
"""Pairs of a row up to which all pairs take less time than sorting."""


def quantile_huber_loss(quantiles: Tensor, target: Tensor, fractions: Tensor, kappa: float) -> Tensor:
    """Compute the loss of each row (B, 1): the sum over quantiles of the mean over those of the target.

    Dabney et al., "Distributional RL with Quantile Regression" (arXiv 1710.10044), equation 10.

    Args:
        quantiles: (B, N), in any order.
        target: (B, M).
        fractions: (N,) or (B, N), of the quantiles.
        kappa: threshold beyond which the loss is linear; 0 for the quantile regression loss.
    """
    given = quantiles, target, fractions
    if is_recorded() or fractions.requires_grad or not are_ordinary(*given):
        return quantile_huber_loss_of_pairs(*given, kappa)
    loss: Tensor = _QuantileHuberLoss.apply(*given, kappa)  # type: ignore[no-untyped-call]
    return loss


def quantile_huber_loss_of_pairs(quantiles: Tensor, target: Tensor, fractions: Tensor, kappa: float) -> Tensor:
    """As :func:`quantile_huber_loss`, by torch's operations on all pairs."""
    error = target.unsqueeze(1) - quantiles.unsqueeze(2)  # (B, N, M)
    magnitude = error.abs()
    huber = torch.where(magnitude <= kappa, 0.5 * error.square(), kappa * (magnitude - 0.5 * kappa))
    loss = huber if kappa else magnitude
    weight = (fractions.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
    return (weight * loss).sum(1).mean(1, keepdim=True)


class _QuantileHuberLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, quantiles: Tensor, target: Tensor, fractions: Tensor, kappa: float) -> Tensor:
        """Compute the loss, and the derivatives that :meth:`backward` needs."""
        target_slope = None
        if ctx.needs_input_grad[1] or quantiles.shape[1] * target.shape[1] <= _FEW_PAIRS:
            loss, slope, target_slope = _of_pairs(quantiles, target, fractions, kappa, ctx.needs_input_grad[1])
        else:
            loss, slope = _of_sorted(quantiles, target, fractions, kappa)
        count = target.shape[1]
        ctx.save_for_backward(slope / -count, None if target_slope is None else target_slope / count)
        return loss.sum(1, keepdim=True) / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of quantiles and target."""
        slope, target_slope = ctx.saved_tensors
        return gradient * slope, None if target_slope is None else gradient * target_slope, None, None


def _of_pairs(
    quantiles: Tensor, target: Tensor, fractions: Tensor, kappa: float, with_target_slope: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return losses (B, N), their derivatives by a shift of the whole target (B, N), and by each target (B, M)."""
    error = target.unsqueeze(1) - quantiles.unsqueeze(2)  # (B, N, M)
    loss, slope = torch.zeros_like(quantiles), torch.zeros_like(quantiles)
    target_slope = torch.zeros_like(target) if with_target_slope else None
    limit, share = (kappa, 0.5) if kappa else (math.inf, 0.0)
    # Targets above their quantile weigh its fraction, those below weigh the rest.
    for weight, low, high in ((fractions, 0.0, limit), (1 - fractions, -limit, 0.0)):
        slopes = error.clamp(low, high)  # (B, N, M)
        if not kappa:
            slopes.sign_()
        losses = torch.sub(error, slopes, alpha=share).mul_(slopes)
        loss += weight * losses.sum(2)
        slope += weight * slopes.sum(2)
        if target_slope is not None:
            target_slope += (weight.unsqueeze(-1) * slopes).sum(1)
    return loss, slope, target_slope


def _of_sorted(quantiles: Tensor, target: Tensor, fractions: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """As the first two of :func:`_of_pairs`, faster for many quantiles.

    In a sorted target, the numbers within kappa of a quantile are contiguous, and so are those beyond. Sums of them are
    differences of cumulative sums, in double precision because of cancellation.
    """
    points, ordered = quantiles.double(), target.double().sort(1).values
    start = points.new_zeros(len(points), 1)
    sums = torch.cat([start, ordered.cumsum(1)], 1)
    squares = torch.cat([start, ordered.square().cumsum(1)], 1)

    def errors_before(place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return number, sum and sum of squares of the errors of the target's first ``place`` numbers, (B, N) each."""
        total, square = sums.gather(1, place), squares.gather(1, place)
        return place, total - place * points, square - points * (2 * total - place * points)

    low = errors_before(torch.searchsorted(ordered, points - kappa))
    middle = errors_before(torch.searchsorted(ordered, points))
    high = errors_before(torch.searchsorted(ordered, points + kappa, right=True))
    number, total, _ = errors_before(torch.full_like(low[0], ordered.shape[1]))
    steepest = kappa or 1.0  # without a threshold, the loss is the error's magnitude
    slope_above = high[1] - middle[1] + steepest * (number - high[0])
    slope_below = middle[1] - low[1] - steepest * low[0]
    loss_above = 0.5 * (high[2] - middle[2]) + steepest * (total - high[1] - 0.5 * kappa * (number - high[0]))
    loss_below = 0.5 * (middle[2] - low[2]) - steepest * (low[1] + 0.5 * kappa * low[0])
    loss = fractions * loss_above + (1 - fractions) * loss_below
    slope = fractions * slope_above + (1 - fractions) * slope_below
    return loss.to(quantiles.dtype), slope.to(quantiles.dtype)
