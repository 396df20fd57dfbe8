"""Distributions of actions under their former import path."""

from pytorchrl.agent.actors.outputs.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    SquashedGaussian,
)

__all__ = ["Bernoulli", "Categorical", "DiagonalGaussian", "Distribution", "MultiCategorical", "SquashedGaussian"]
