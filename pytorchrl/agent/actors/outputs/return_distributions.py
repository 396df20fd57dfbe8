"""Distributions of returns: probabilities of atoms, quantiles, and quantiles at sampled fractions."""

from functools import cached_property
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.value import RULED_OUT_VALUE, ActionValues, Value
from pytorchrl.agent.device import make_constants
from pytorchrl.agent.ops.quantile_huber import quantile_huber_loss
from pytorchrl.agent.risk_measures import RiskMeasure


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


class QuantileFunction(Protocol):
    """A quantile function of the returns at features (B, F), and the number of fractions to sample."""

    num_actions: int
    num_quantiles: int
    """Number of fractions sampled for the value of an action."""
    num_action_quantiles: int
    """Number of fractions sampled to choose an action."""
    kappa: float
    """Threshold of the quantile Huber loss."""
    risk: RiskMeasure
    """Risk measure by which actions are chosen."""
    midpoints: Tensor
    """(num_action_quantiles,): fractions by which actions are chosen deterministically."""

    def quantiles(self, features: Tensor, fractions: Tensor) -> Tensor:
        """Return quantiles (B, n, N) of each action's return, at fractions (N,)."""

    def mixed(self, features: Tensor, fractions: Tensor, weights: Tensor) -> Tensor:
        """Return the sum (B, N) over actions of weights (B, n) times quantiles."""

    def means(self, features: Tensor, fractions: Tensor) -> Tensor:
        """Return the mean (B, n) over fractions of quantiles."""


class ImplicitQuantileValue(QuantileValue):
    """Quantiles of the return of each row at sampled fractions."""

    def loss(self, target: QuantileValue) -> Tensor:
        """Loss of each row, (B, 1): equation 3, which divides the quantile Huber loss by its threshold."""
        return super().loss(target) / self.kappa


class ImplicitQuantileValues(ActionValues):
    """Quantiles of the return of each action, at fractions that are sampled at each use.

    Sampling is stratified: one fraction in each of N equal parts of [0, 1], which all rows share. The expected loss is
    that of N independent fractions for each row; the variance of means over fractions is far smaller, and fractions are
    embedded once for all rows.

    Args:
        function: from features and fractions to quantiles.
        features: (B, F).
        generator: of the fractions, on the device of the features; None for torch's default one.
        action_fractions: (K,), by which to choose actions; None samples them.
        allowed: (B, n) bool, the actions that may be the best; None where all may.
    """

    def __init__(
        self,
        function: QuantileFunction,
        features: Tensor,
        generator: torch.Generator | None = None,
        action_fractions: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> None:
        self.function = function
        self.features = features
        self._generator = generator
        self._action_fractions = action_fractions
        self._allowed = allowed

    @cached_property
    def values(self) -> Tensor:
        """Means at distorted fractions, by which actions are chosen, (B, n); expected returns at neutral risk."""
        function, fractions = self.function, self._action_fractions
        if fractions is None:
            fractions = self._drawn(function.num_action_quantiles)
        means = function.means(self.features, function.risk.distort(fractions))
        return means if self._allowed is None else means.masked_fill(~self._allowed, RULED_OUT_VALUE)

    def of(self, action: Tensor) -> ImplicitQuantileValue:
        """Values of actions (B, 1) int64."""
        return self.expectation(F.one_hot(action[:, 0], self.function.num_actions).to(self.features.dtype))

    def expectation(self, probabilities: Tensor) -> ImplicitQuantileValue:
        """Values of a policy with action probabilities (B, n); see :class:`QuantileValues`."""
        fractions = self._drawn(self.function.num_quantiles)
        quantiles = self.function.mixed(self.features, fractions, probabilities)
        return ImplicitQuantileValue(quantiles, fractions, self.function.kappa)

    def at(self, fractions: Tensor) -> QuantileValues:
        """Return quantiles at fractions (N,)."""
        return QuantileValues(self.function.quantiles(self.features, fractions), fractions, self.function.kappa)

    def explorer_for(self, generator: torch.Generator) -> "ImplicitQuantileValues":
        """Return the same values with fractions from another generator."""
        return ImplicitQuantileValues(self.function, self.features, generator, allowed=self._allowed)

    def at_midpoints(self) -> "ImplicitQuantileValues":
        """Return the same values with fixed fractions to choose actions by, the midpoints of equal parts."""
        midpoints = self.function.midpoints
        return ImplicitQuantileValues(self.function, self.features, self._generator, midpoints, self._allowed)

    def allowing(self, allowed: Tensor) -> "ImplicitQuantileValues":
        """Return the values such that only actions of those allowed, (B, n) bool, are ever the best."""
        given = self.function, self.features, self._generator, self._action_fractions
        return ImplicitQuantileValues(*given, allowed)

    def _drawn(self, count: int) -> Tensor:
        """Sample fractions (count,), one uniformly in each of ``count`` equal parts of [0, 1]."""
        within = self.features.new_empty(count).uniform_(generator=self._generator)
        if within.is_meta:
            # As in `make_constants`.
            return within
        return within.add_(torch.arange(count, device=within.device)).div_(count)
