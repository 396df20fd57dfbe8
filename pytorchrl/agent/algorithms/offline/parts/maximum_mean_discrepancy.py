"""How far two sets of actions lie apart, by their means in a kernel's feature space."""

from typing import Literal, TypeAlias

from torch import Tensor

Kernel: TypeAlias = Literal["gaussian", "laplacian"]

_TINY = 1e-6
"""Keeps the root's gradient finite where two sets are the same."""


def maximum_mean_discrepancy(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """(N, 1): the discrepancy of two sets of actions in each row.

    Gretton et al., "A Kernel Two-Sample Test" (JMLR 13, 2012), by all pairs, those of an action with itself included,
    as in Kumar et al. (arXiv 1906.00949), equation 4 and appendix.

    Args:
        some: (N, n, A).
        others: (N, m, A).
        kernel: "gaussian", ``exp(-d / (2 * sigma))`` of squared distances d, or "laplacian", of sums of magnitudes.
        sigma: width of the kernel, not squared in either.
    """
    within = _mean_similarity(some, some, kernel, sigma) + _mean_similarity(others, others, kernel, sigma)
    return (within - 2 * _mean_similarity(some, others, kernel, sigma) + _TINY).sqrt()


def _mean_similarity(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """(N, 1)."""
    difference = some.unsqueeze(2) - others.unsqueeze(1)
    distance = (difference.square() if kernel == "gaussian" else difference.abs()).sum(3)
    return (-distance / (2 * sigma)).exp().mean((1, 2)).unsqueeze(1)
