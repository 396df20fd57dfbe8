"""Quantiles of returns at sampled fractions: Dabney et al., "Implicit Quantile Networks" (arXiv 1806.06923)."""

from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.quantile import QuantileValue, QuantileValues
from pytorchrl.agent.actors.outputs.values.value import RULED_OUT, ActionValues
from pytorchrl.agent.risk_measures import RiskMeasure


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
        return means if self._allowed is None else means.masked_fill(~self._allowed, RULED_OUT)

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
