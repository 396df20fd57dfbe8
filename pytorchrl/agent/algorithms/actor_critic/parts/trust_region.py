"""ACER's trust region on the parameters of a distribution."""

from collections.abc import Sequence

import torch
from torch import Tensor


def within_trust_region(
    gradients: Sequence[Tensor], divergence_gradients: Sequence[Tensor], limit: float
) -> list[Tensor]:
    """Project gradients so that a divergence grows by at most ``limit`` along them, to first order.

    Wang et al., "Sample Efficient Actor-Critic with Experience Replay" (arXiv 1611.01224), equations 11 and 12. Where
    the divergence has no gradient, they stay unchanged.

    Args:
        gradients: (B, ...) each, of an objective with respect to the parameters of each row's distribution.
        divergence_gradients: of the same shapes, of the divergence.
        limit: bound of the scalar product of both in each row.
    """
    product = _of_rows([one * other for one, other in zip(gradients, divergence_gradients, strict=True)])
    squared = _of_rows([other.square() for other in divergence_gradients])
    # The clamp avoids 0 / 0 where the divergence has no gradient.
    excess = (product - limit).clamp_min(0) / squared.clamp_min(torch.finfo(squared.dtype).tiny)
    return [
        one - excess.view(-1, *[1] * (one.ndim - 1)) * other
        for one, other in zip(gradients, divergence_gradients, strict=True)
    ]


def _of_rows(parts: Sequence[Tensor]) -> Tensor:
    """Return the sums (B,) over all elements of each row."""
    return torch.stack([part.flatten(1).sum(1) for part in parts]).sum(0)
