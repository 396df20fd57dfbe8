"""Heads: output layers from features to a policy or a value function."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads.beta_policy import BetaPolicy
from pytorchrl.agent.actors.heads.discrete_policies import MellowmaxPolicy, SoftmaxPolicy
from pytorchrl.agent.actors.heads.distribution_head import (
    DistributionHead,
    check_bounded,
    check_scaled,
    in_units_of_environments,
)
from pytorchrl.agent.actors.heads.features import Features
from pytorchrl.agent.actors.heads.gaussian_policies import GaussianPolicy, LatentGaussian, SquashedGaussianPolicy
from pytorchrl.agent.actors.heads.gsde_policy import GSDEPolicy
from pytorchrl.agent.actors.heads.implicit_quantiles import ImplicitQuantiles
from pytorchrl.agent.actors.heads.mixture_policy import MixturePolicy
from pytorchrl.agent.actors.heads.policies import DeterministicPolicy, Policy
from pytorchrl.agent.actors.heads.quadratic import Quadratic
from pytorchrl.agent.actors.heads.values import (
    ActionComponents,
    ActionQuantiles,
    ActionValue,
    CategoricalReturns,
    QuantileReturns,
    StateValue,
    Values,
    make_action_layers,
)
from pytorchrl.agent.actors.layers.output_layer import ConvertedNumbers, OutputLayer

__all__ = [
    "ActionComponents",
    "ActionQuantiles",
    "ActionValue",
    "BetaPolicy",
    "CategoricalReturns",
    "ConvertedNumbers",
    "DeterministicPolicy",
    "DistributionHead",
    "Features",
    "GSDEPolicy",
    "GaussianPolicy",
    "Head",
    "ImplicitQuantiles",
    "LatentGaussian",
    "MellowmaxPolicy",
    "MixturePolicy",
    "OutputLayer",
    "Policy",
    "Quadratic",
    "QuantileReturns",
    "SoftmaxPolicy",
    "SquashedGaussianPolicy",
    "StateValue",
    "Values",
    "check_bounded",
    "check_scaled",
    "in_units_of_environments",
    "make_action_layers",
]
