"""Planners: how actions are searched for in a model of the environment."""

from pytorchrl.agent.planners.sampling import (
    CrossEntropy,
    ElitePathIntegral,
    PathIntegral,
    Plan,
    Planner,
    Propose,
    RandomShooting,
    Returns,
)
from pytorchrl.agent.planners.trajectory_optimisation import (
    Trajectory,
    linear_quadratic_regulator,
    optimise_trajectory,
)

__all__ = [
    "CrossEntropy",
    "ElitePathIntegral",
    "PathIntegral",
    "Plan",
    "Planner",
    "Propose",
    "RandomShooting",
    "Returns",
    "Trajectory",
    "linear_quadratic_regulator",
    "optimise_trajectory",
]
