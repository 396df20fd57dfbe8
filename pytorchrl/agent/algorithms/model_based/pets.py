"""PETS: planning by the cross-entropy method with an ensemble of probabilistic models."""

from typing import ClassVar

from pytorchrl.agent.algorithms.model_based.mb_mpc import MBMPC
from pytorchrl.agent.planners import CrossEntropy, Planner
from storages.component.hyper_parameters import Count


class PETS(MBMPC):
    """Chua et al., "Deep RL in a Handful of Trials using Probabilistic Dynamics Models" (arXiv 1805.12114).

    Rewards and ends of episodes are predicted, too, where the paper is given them.
    """

    probabilistic: ClassVar[bool] = True

    planner: Planner = CrossEntropy()
    ensemble_size: Count = 5
