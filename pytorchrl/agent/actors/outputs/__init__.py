"""Outputs of networks: distributions of actions, and values of actions.

Distributions sample from a given generator and keep the trailing axis of scalars. They are hand-written because
torch.distributions takes no generator, which a checkpoint could save, and checks and broadcasts on a path that runs at
every environment step. :class:`TorchDistribution` adapts the others.
"""

from pytorchrl.agent.actors.outputs.beta import Beta
from pytorchrl.agent.actors.outputs.discrete import (
    Bernoulli,
    Categorical,
    FlooredCategorical,
    MellowmaxCategorical,
    MultiCategorical,
    mellowmax,
    mellowmax_logits,
)
from pytorchrl.agent.actors.outputs.distribution import Distribution, Scaled
from pytorchrl.agent.actors.outputs.expected_returns import (
    ComponentValue,
    QuadraticValues,
    RescaledValue,
    RescaledValues,
    ScalarValue,
    ScalarValues,
)
from pytorchrl.agent.actors.outputs.gaussian import (
    DiagonalGaussian,
    GaussianMixture,
    ScaledStateDependentNoise,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    StateDependentNoise,
)
from pytorchrl.agent.actors.outputs.return_distributions import (
    CategoricalValue,
    CategoricalValues,
    ImplicitQuantileValue,
    ImplicitQuantileValues,
    QuantileValue,
    QuantileValues,
    quantile_midpoints,
)
from pytorchrl.agent.actors.outputs.torch_distribution import TorchDistribution
from pytorchrl.agent.actors.outputs.value import ActionValueFunction, ActionValues, Value

__all__ = [
    "ActionValueFunction",
    "ActionValues",
    "Bernoulli",
    "Beta",
    "Categorical",
    "CategoricalValue",
    "CategoricalValues",
    "ComponentValue",
    "DiagonalGaussian",
    "Distribution",
    "FlooredCategorical",
    "GaussianMixture",
    "ImplicitQuantileValue",
    "ImplicitQuantileValues",
    "MellowmaxCategorical",
    "MultiCategorical",
    "QuadraticValues",
    "QuantileValue",
    "QuantileValues",
    "RescaledValue",
    "RescaledValues",
    "ScalarValue",
    "ScalarValues",
    "Scaled",
    "ScaledStateDependentNoise",
    "SquashedGaussian",
    "SquashedStateDependentGaussian",
    "StateDependentGaussian",
    "StateDependentNoise",
    "TorchDistribution",
    "Value",
    "mellowmax",
    "mellowmax_logits",
    "quantile_midpoints",
]
