"""Quantiles of returns: Dabney et al., "Distributional RL with Quantile Regression" (arXiv 1710.10044)."""

from typing import Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.value import ActionValues, Value
from pytorchrl.agent.device import make_constants
from pytorchrl.agent.ops.quantile_huber import quantile_huber_loss


def quantile_midpoints(num_quantiles: int) -> Tensor:
    """Fractions of equally likely quantiles, (N,): the midpoints of N equal parts of [0, 1] (the paper's lemma 2)."""
    return make_constants(num_quantiles, lambda: (torch.arange(num_quantiles) + 0.5) / num_quantiles)


class QuantileValue(Value):
    """Quantiles of the return of each row.

    Args:
        quantiles: (B, N), in any order.
        fractions: of each quantile, in (0, 1): (N,), as of :func:`quantile_midpoints`, or (B, N), as sampled by
            implicit quantile networks (arXiv 1806.06923).
        kappa: threshold of the quantile Huber loss; 0 for the quantile regression loss.
    """

    def __init__(self, quantiles: Tensor, fractions: Tensor, kappa: float = 1.0) -> None:
        self.quantiles = quantiles
        self.fractions = fractions
        self.kappa = kappa

    @property
    def mean(self) -> Tensor:
        """Expected return, (B, 1)."""
        return self.quantiles.mean(1, keepdim=True)

    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """Value of ``reward + discount * return``, of (B, 1) each, quantile by quantile."""
        return type(self)(torch.addcmul(reward, discount, self.quantiles), self.fractions, self.kappa)

    def loss(self, target: "QuantileValue") -> Tensor:
        """Quantile Huber loss of each row, (B, 1): sum over quantiles, mean over those of the target (algorithm 1).

        The target may have another number of quantiles.
        """
        return quantile_huber_loss(self.quantiles, target.quantiles, self.fractions, self.kappa)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.quantiles.detach(), self.fractions, self.kappa)


class QuantileValues(ActionValues):
    """Quantiles of the return of each action.

    Args:
        quantiles: (B, n, N).
        fractions: as of :class:`QuantileValue`.
        kappa: as of :class:`QuantileValue`.
    """

    def __init__(self, quantiles: Tensor, fractions: Tensor, kappa: float = 1.0) -> None:
        self.quantiles = quantiles
        self.fractions = fractions
        self.kappa = kappa

    @property
    def values(self) -> Tensor:
        """Expected returns, (B, n)."""
        return self.quantiles.mean(2)

    def of(self, action: Tensor) -> QuantileValue:
        """Values of actions (B, 1) int64."""
        chosen = self.quantiles.take_along_dim(action.unsqueeze(2), dim=1).squeeze(1)
        return QuantileValue(chosen, self.fractions, self.kappa)

    def expectation(self, probabilities: Tensor) -> QuantileValue:
        """Values of a policy with action probabilities (B, n).

        Each quantile is the mean of the actions' (Vieillard et al., arXiv 2007.14430, appendix B.1), so that the mean
        is exact.
        """
        mixed = (probabilities.unsqueeze(2) * self.quantiles).sum(1)
        return QuantileValue(mixed, self.fractions, self.kappa)
