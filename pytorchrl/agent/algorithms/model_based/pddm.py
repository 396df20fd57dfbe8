"""PDDM: planning by averages weighted by returns, with an ensemble of deterministic models."""

from pytorchrl.agent.algorithms.model_based.mb_mpc import MBMPC
from pytorchrl.agent.planners import PathIntegral, Planner
from storages.component.hyper_parameters import Count


class PDDM(MBMPC):
    """Nagabandi et al., "Deep Dynamics Models for Learning Dexterous Manipulation" (arXiv 1909.11652).

    Rewards and ends of episodes are predicted, too, where the paper is given them.
    """

    planner: Planner = PathIntegral(num_samples=200, noise=0.7, smoothing=0.3)
    ensemble_size: Count = 3
