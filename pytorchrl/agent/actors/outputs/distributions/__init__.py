"""Distributions of actions: sampled from a generator that a checkpoint can save, scalars with their trailing axis.

Hand-written for what torch.distributions lacks: a generator as an argument, and no checks or broadcasting on a path
that runs at every environment step. :class:`TorchDistribution` adapts the others.
"""

from pytorchrl.agent.actors.outputs.distributions.adapter import TorchDistribution
from pytorchrl.agent.actors.outputs.distributions.discrete import Bernoulli, Categorical, MultiCategorical
from pytorchrl.agent.actors.outputs.distributions.distribution import Distribution
from pytorchrl.agent.actors.outputs.distributions.gaussian import DiagonalGaussian, SquashedGaussian
from pytorchrl.agent.actors.outputs.distributions.mixture import GaussianMixture

__all__ = [
    "Bernoulli",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "GaussianMixture",
    "MultiCategorical",
    "SquashedGaussian",
    "TorchDistribution",
]
