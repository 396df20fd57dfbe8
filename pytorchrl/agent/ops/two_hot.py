"""Symmetric logarithms, and two-hot codes of numbers for regression by classification.

Hafner et al., "Mastering Diverse Domains through World Models" (DreamerV3, arXiv 2301.04104), section "Robust
predictions". Bins may be spaced evenly, for codes of ``symlog(x)`` as in TD-MPC2 (arXiv 2310.16828), or be ``symexp``
of evenly spaced numbers, for codes of ``x`` itself as in DreamerV3. The loss of logits is the cross-entropy,
``-(two_hot(x, bins) * logits.log_softmax(-1)).sum(-1)``.
"""

import torch
from torch import Tensor


def symlog(x: Tensor) -> Tensor:
    """Return the symmetric logarithm ``sign(x) * ln(1 + |x|)``, of any shape."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """Return the inverse of :func:`symlog`, ``sign(x) * (exp(|x|) - 1)``, of any shape."""
    return x.sign() * x.abs().expm1()


def two_hot(x: Tensor, bins: Tensor) -> Tensor:
    """Return the weights (B, K) of the two bins next to each number, by which their mean is the number.

    Numbers beyond the bins have the code of the outermost one.

    Args:
        x: (B,), or of any other shape, to which the code adds the axis of the bins.
        bins: (K,), at least two, ascending.
    """
    x = x.clamp(bins[0], bins[-1]).contiguous()
    above = torch.searchsorted(bins, x, right=True).clamp(1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    share = ((x - low) / (high - low)).unsqueeze(-1)
    code = x.new_zeros((*x.shape, len(bins)))
    above = above.unsqueeze(-1)
    return code.scatter(-1, above - 1, 1 - share).scatter(-1, above, share)


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """Return the mean (B,) of the bins, weighted by the softmax of logits.

    Args:
        logits: (B, K), or with any other axes before the last one.
        bins: (K,).
    """
    weighted = logits.softmax(-1) * bins
    # The outermost bins may be a billion times the mean. Added in pairs, bins that are symmetric about 0 cancel
    # exactly where probabilities do: an untrained network predicts 0, and not the rounding error of a sum.
    return (weighted + weighted.flip(-1)).sum(-1) / 2
