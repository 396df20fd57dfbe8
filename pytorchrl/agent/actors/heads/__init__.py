"""Heads: from features to what an algorithm needs."""

from pytorchrl.agent.actors.heads.policies import DeterministicPolicy, GaussianPolicy, Policy, SquashedGaussianPolicy
from pytorchrl.agent.actors.heads.values import ActionValue, CategoricalReturns, QuantileReturns, StateValue, Values

__all__ = [
    "ActionValue",
    "CategoricalReturns",
    "DeterministicPolicy",
    "GaussianPolicy",
    "Policy",
    "QuantileReturns",
    "SquashedGaussianPolicy",
    "StateValue",
    "Values",
]
