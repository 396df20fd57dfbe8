"""Heads: from features to what an algorithm needs."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads.implicit_quantiles import ImplicitQuantiles
from pytorchrl.agent.actors.heads.policies import DeterministicPolicy, GaussianPolicy, Policy, SquashedGaussianPolicy
from pytorchrl.agent.actors.heads.quadratic import Quadratic
from pytorchrl.agent.actors.heads.values import (
    ActionValue,
    CategoricalReturns,
    QuantileReturns,
    StateValue,
    Values,
    numbers_of_actions,
)

__all__ = [
    "ActionValue",
    "CategoricalReturns",
    "DeterministicPolicy",
    "GaussianPolicy",
    "Head",
    "ImplicitQuantiles",
    "Policy",
    "Quadratic",
    "QuantileReturns",
    "SquashedGaussianPolicy",
    "StateValue",
    "Values",
    "numbers_of_actions",
]
