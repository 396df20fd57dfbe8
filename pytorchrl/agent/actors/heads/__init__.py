"""Heads: output layers from features to a policy or a value function."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads.continuous_policies import (
    BetaPolicy,
    GaussianPolicy,
    GSDEPolicy,
    LatentGaussian,
    MixturePolicy,
    SquashedGaussianPolicy,
)
from pytorchrl.agent.actors.heads.distribution_head import (
    DistributionHead,
    check_bounded,
    check_scaled,
    in_units_of_environments,
)
from pytorchrl.agent.actors.heads.implicit_quantiles import ImplicitQuantiles
from pytorchrl.agent.actors.heads.policies import DeterministicPolicy, MellowmaxPolicy, Policy, SoftmaxPolicy
from pytorchrl.agent.actors.heads.values import (
    ActionComponents,
    ActionQuantiles,
    ActionValue,
    CategoricalReturns,
    Features,
    Quadratic,
    QuantileReturns,
    StateValue,
    Values,
    make_action_layers,
)
from pytorchrl.agent.actors.layers.linear_layers import ConvertedNumbers, OutputLayer

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
