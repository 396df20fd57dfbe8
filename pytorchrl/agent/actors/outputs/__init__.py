"""What networks return: distributions of actions, and values of actions."""

from pytorchrl.agent.actors.outputs.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    GaussianMixture,
    MultiCategorical,
    SquashedGaussian,
    TorchDistribution,
)
from pytorchrl.agent.actors.outputs.values import (
    ActionValueFunction,
    ActionValues,
    CategoricalValue,
    CategoricalValues,
    QuadraticValues,
    QuantileValue,
    QuantileValues,
    ScalarValue,
    ScalarValues,
    Value,
    quantile_midpoints,
)

__all__ = [
    "ActionValueFunction",
    "ActionValues",
    "Bernoulli",
    "Categorical",
    "CategoricalValue",
    "CategoricalValues",
    "DiagonalGaussian",
    "Distribution",
    "GaussianMixture",
    "MultiCategorical",
    "QuadraticValues",
    "QuantileValue",
    "QuantileValues",
    "ScalarValue",
    "ScalarValues",
    "SquashedGaussian",
    "TorchDistribution",
    "Value",
    "quantile_midpoints",
]
