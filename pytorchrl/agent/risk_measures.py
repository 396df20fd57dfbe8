"""Risk measures, which distort the return distribution that actions are chosen by.

The value of an action is the mean of its quantiles at distorted fractions; a risk-averse measure gives more weight to
low quantiles (Dabney et al., "Implicit Quantile Networks", arXiv 1806.06923, section 4).
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
    """A distortion of quantile fractions; a subclass is a frozen dataclass that implements :meth:`distort`."""

    @abstractmethod
    def distort(self, fractions: Tensor) -> Tensor:
        """Return the distorted fractions in [0, 1], at which quantiles are evaluated, in the same shape."""


@dataclass(frozen=True)
class Neutral(RiskMeasure):
    """No distortion: the expected return."""

    def distort(self, fractions: Tensor) -> Tensor:
        """Return the fractions unchanged."""
        return fractions


@dataclass(frozen=True)
class CVaR(RiskMeasure):
    """Conditional value at risk: the mean of the lowest returns.

    Chow and Ghavamzadeh, "Algorithms for CVaR Optimization in MDPs" (arXiv 1406.3339).

    Args:
        eta: fraction of the lowest returns that count, in (0, 1]; 1 is neutral.
    """

    eta: Annotated[float, Within(0, 1)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eta == 0:
            raise ValueError("CVaR: eta must be greater than 0, got 0.0; a small eta averages the lowest returns")

    def distort(self, fractions: Tensor) -> Tensor:
        """Return ``eta * fractions``."""
        return self.eta * fractions


@dataclass(frozen=True)
class CPW(RiskMeasure):
    """Cumulative probability weighting: rare returns, both low and high, are overweighted.

    Tversky and Kahneman, "Advances in Prospect Theory" (Journal of Risk and Uncertainty 5, 1992); 0.71 is the estimate
    of Wu and Gonzalez for people ("Curvature of the Probability Weighting Function", Management Science 42, 1996).

    Args:
        eta: exponent of the weighting; 1 is neutral; below it, extreme returns count more.
    """

    eta: Positive = 0.71

    def distort(self, fractions: Tensor) -> Tensor:
        """Return ``fractions**eta / (fractions**eta + (1 - fractions)**eta) ** (1 / eta)``."""
        weight = fractions**self.eta
        return weight / (weight + (1 - fractions) ** self.eta) ** (1 / self.eta)


@dataclass(frozen=True)
class Wang(RiskMeasure):
    """Wang transform: fractions are shifted on the scale of normal quantiles.

    Wang, "A Class of Distortion Operators for Pricing Financial and Insurance Risks" (Journal of Risk and Insurance 67,
    2000).

    Args:
        eta: the shift; below 0 risk-averse, above 0 risk-seeking.
    """

    eta: float

    def distort(self, fractions: Tensor) -> Tensor:
        """Return ``Phi(Phi^-1(fractions) + eta)``, with Phi the standard normal cumulative distribution function."""
        shifted: Tensor = torch.special.ndtr(torch.special.ndtri(fractions) + self.eta)
        return shifted
