"""Maximum mean discrepancy between two sets of actions."""

from typing import Literal, TypeAlias

from torch import Tensor

Kernel: TypeAlias = Literal["gaussian", "laplacian"]

_TINY = 1e-6
"""Keeps the gradient of the square root finite where two sets are equal."""


def maximum_mean_discrepancy(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """Return the maximum mean discrepancy (N, 1) of two sets of actions in each row.

    Gretton et al., "A Kernel Two-Sample Test" (JMLR 13, 2012), over all pairs including those of an action with itself,
    as in Kumar et al. (arXiv 1906.00949), equation 4 and appendix.

    Args:
        some: (N, n, A).
        others: (N, m, A).
        kernel: ``exp(-d / (2 * sigma))`` of squared distances d ("gaussian") or L1 distances ("laplacian").
        sigma: width of the kernel, not squared in either.
    """
    within = _mean_similarity(some, some, kernel, sigma) + _mean_similarity(others, others, kernel, sigma)
    return (within - 2 * _mean_similarity(some, others, kernel, sigma) + _TINY).sqrt()


def _mean_similarity(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """Return the mean kernel value (N, 1) over all pairs."""
    difference = some.unsqueeze(2) - others.unsqueeze(1)
    distance = (difference.square() if kernel == "gaussian" else difference.abs()).sum(3)
    return (-distance / (2 * sigma)).exp().mean((1, 2)).unsqueeze(1)
