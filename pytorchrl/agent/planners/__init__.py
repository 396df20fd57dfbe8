"""Planners: how actions are searched for in a model of the environment."""

from pytorchrl.agent.planners.cross_entropy import CrossEntropy
from pytorchrl.agent.planners.path_integral import PathIntegral
from pytorchrl.agent.planners.planner import Planner, Returns
from pytorchrl.agent.planners.random_shooting import RandomShooting
from pytorchrl.agent.planners.trajectory_optimisation import (
    Trajectory,
    linear_quadratic_regulator,
    optimise_trajectory,
)

__all__ = [
    "CrossEntropy",
    "PathIntegral",
    "Planner",
    "RandomShooting",
    "Returns",
    "Trajectory",
    "linear_quadratic_regulator",
    "optimise_trajectory",
]
