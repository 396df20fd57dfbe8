"""Categorical return distributions: Bellemare et al., "A Distributional Perspective on RL" (C51, arXiv 1707.06887)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.value import ActionValues, Value


class CategoricalValue(Value):
    """A categorical return distribution of each row over a support, from either logits or probabilities.

    Args:
        support: (K,), at least two evenly spaced returns (atoms), ascending.
        logits: (B, K), unnormalised log probabilities.
        probabilities: (B, K).
    """

    def __init__(self, support: Tensor, *, logits: Tensor | None = None, probabilities: Tensor | None = None) -> None:
        assert (logits is None) != (probabilities is None)
        self.support = support
        self._logits = logits
        self._probabilities = probabilities

    @property
    def probabilities(self) -> Tensor:
        """Probability of each atom, (B, K)."""
        if self._logits is not None:
            return F.softmax(self._logits, dim=1)
        assert self._probabilities is not None
        return self._probabilities

    @property
    def log_probabilities(self) -> Tensor:
        """Log probability of each atom, (B, K); where a probability is 0, that of the smallest normal number."""
        if self._logits is not None:
            return F.log_softmax(self._logits, dim=1)
        assert self._probabilities is not None
        return self._probabilities.clamp_min(torch.finfo(self._probabilities.dtype).tiny).log()

    @property
    def mean(self) -> Tensor:
        """Expected return, (B, 1)."""
        return (self.probabilities * self.support).sum(1, keepdim=True)

    def backup(self, reward: Tensor, discount: Tensor) -> "CategoricalValue":
        """Value of ``reward + discount * return``, of (B, 1) each, projected onto the support (algorithm 1)."""
        atoms, probabilities = len(self.support), self.probabilities
        low, high = self.support[0], self.support[-1]
        position = (torch.addcmul(reward, discount, self.support) - low) * ((atoms - 1) / (high - low))
        position = position.clamp(0, atoms - 1)
        # The upper neighbour is always one above, so that an atom hit exactly gets the whole probability.
        lower = position.detach().floor().clamp_max_(atoms - 2)
        index = lower.long()
        to_upper = probabilities * (position - lower)
        projected = torch.zeros_like(probabilities).scatter_add(1, index, probabilities - to_upper)
        return CategoricalValue(self.support, probabilities=projected.scatter_add(1, index + 1, to_upper))

    def loss(self, target: "CategoricalValue") -> Tensor:
        """Cross-entropy of the target with this distribution, of each row, (B, 1)."""
        return -(target.probabilities * self.log_probabilities).sum(1, keepdim=True)

    def detach(self) -> "CategoricalValue":
        """Copy without gradients."""
        if self._logits is not None:
            return CategoricalValue(self.support, logits=self._logits.detach())
        return CategoricalValue(self.support, probabilities=self.probabilities.detach())


class CategoricalValues(ActionValues):
    """A categorical return distribution of each action over a support.

    Args:
        support: (K,), at least two evenly spaced returns (atoms), ascending.
        logits: (B, n, K), unnormalised log probabilities.
    """

    def __init__(self, support: Tensor, logits: Tensor) -> None:
        self.support = support
        self.logits = logits

    @property
    def values(self) -> Tensor:
        """Expected returns, (B, n)."""
        return (F.softmax(self.logits, dim=2) * self.support).sum(2)

    def of(self, action: Tensor) -> CategoricalValue:
        """Values of actions (B, 1) int64."""
        chosen = self.logits.take_along_dim(action.unsqueeze(2), dim=1).squeeze(1)
        return CategoricalValue(self.support, logits=chosen)

    def expectation(self, probabilities: Tensor) -> CategoricalValue:
        """Values of a policy with action probabilities (B, n): the mixture of the actions' distributions."""
        mixed = (probabilities.unsqueeze(2) * F.softmax(self.logits, dim=2)).sum(1)
        return CategoricalValue(self.support, probabilities=mixed)
