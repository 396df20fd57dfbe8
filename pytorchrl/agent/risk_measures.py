"""Risk measures: which part of a distribution of returns an agent acts by.

Each distorts fractions: an action is worth the mean of its quantiles at distorted fractions, so that low quantiles
count more where one is averse to risk (Dabney et al., "Implicit Quantile Networks", arXiv 1806.06923, section 4).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from storages.component.hyper_parameters import Positive, Within
from storages.component.setting import Setting

__all__ = ["CPW", "CVaR", "Neutral", "RiskMeasure", "Wang"]


@dataclass(frozen=True)
class RiskMeasure(Setting, ABC):
    """A map of fractions; a subclass is a frozen dataclass that writes :meth:`distort`."""

    @abstractmethod
    def distort(self, fractions: Tensor) -> Tensor:
        """The fractions in [0, 1] that quantiles are taken at instead of these, in the same shape."""


@dataclass(frozen=True)
class Neutral(RiskMeasure):
    """The expected return."""

    def distort(self, fractions: Tensor) -> Tensor:
        """The fractions as they are."""
        return fractions


@dataclass(frozen=True)
class CVaR(RiskMeasure):
    """Conditional value at risk: the mean of the lowest returns.

    Chow and Ghavamzadeh, "Algorithms for CVaR Optimization in MDPs" (arXiv 1406.3339).

    Args:
        eta: share of the returns that count, in (0, 1]; 1 is neutral.
    """

    eta: Annotated[float, Within(0, 1)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta == 0:
            raise ValueError("CVaR: eta must be greater than 0, got 0.0; a small share takes the lowest returns")

    def distort(self, fractions: Tensor) -> Tensor:
        """``eta * fractions``."""
        return self.eta * fractions


@dataclass(frozen=True)
class CPW(RiskMeasure):
    """Cumulative probability weighting: rare returns, both low and high, count more than they are likely.

    Tversky and Kahneman, "Advances in Prospect Theory" (Journal of Risk and Uncertainty 5, 1992); 0.71 is what Wu and
    Gonzalez found in people ("Curvature of the Probability Weighting Function", Management Science 42, 1996).

    Args:
        eta: 1 is neutral; below it, extreme returns count more.
    """

    eta: Positive = 0.71

    def distort(self, fractions: Tensor) -> Tensor:
        """``fractions**eta / (fractions**eta + (1 - fractions)**eta) ** (1 / eta)``."""
        weight = fractions**self.eta
        return weight / (weight + (1 - fractions) ** self.eta) ** (1 / self.eta)


@dataclass(frozen=True)
class Wang(RiskMeasure):
    """Wang's transform: normal quantiles are shifted.

    Wang, "A Class of Distortion Operators for Pricing Financial and Insurance Risks" (Journal of Risk and Insurance 67,
    2000).

    Args:
        eta: the shift; below 0 averse to risk, above 0 seeking it.
    """

    eta: float

    def distort(self, fractions: Tensor) -> Tensor:
        """``Phi(Phi^-1(fractions) + eta)``, Phi the standard normal distribution function."""
        shifted: Tensor = torch.special.ndtr(torch.special.ndtri(fractions) + self.eta)
        return shifted
