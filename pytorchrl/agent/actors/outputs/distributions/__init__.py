"""Distributions of actions, which sample from a given generator and keep the trailing axis of scalars.

They are hand-written because torch.distributions takes no generator, which a checkpoint could save, and checks and
broadcasts on a path that runs at every environment step. :class:`TorchDistribution` adapts the others.
"""

from pytorchrl.agent.actors.outputs.distributions.adapter import TorchDistribution
from pytorchrl.agent.actors.outputs.distributions.beta import Beta
from pytorchrl.agent.actors.outputs.distributions.discrete import (
    Bernoulli,
    Categorical,
    FlooredCategorical,
    MultiCategorical,
)
from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution
from pytorchrl.agent.actors.outputs.distributions.gaussian import DiagonalGaussian, SquashedGaussian
from pytorchrl.agent.actors.outputs.distributions.mellowmax import (
    MellowmaxCategorical,
    mellowmax,
    mellowmax_logits,
)
from pytorchrl.agent.actors.outputs.distributions.mixture import GaussianMixture
from pytorchrl.agent.actors.outputs.distributions.scaled import Scaled
from pytorchrl.agent.actors.outputs.distributions.state_dependent import (
    ScaledStateDependentNoise,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    StateDependentNoise,
)

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "FlooredCategorical",
    "GaussianMixture",
    "MellowmaxCategorical",
    "MultiCategorical",
    "Scaled",
    "ScaledStateDependentNoise",
    "SquashedGaussian",
    "SquashedStateDependentGaussian",
    "StateDependentGaussian",
    "StateDependentNoise",
    "TorchDistribution",
    "mellowmax",
    "mellowmax_logits",
]
