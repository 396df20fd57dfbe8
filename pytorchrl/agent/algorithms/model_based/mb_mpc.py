"""MBMPC: planning by random shooting with one deterministic model."""

from typing import ClassVar

from pytorchrl.agent.algorithms.model_based.parts.model_predictive_control import ModelPredictiveControl
from pytorchrl.agent.planners import Planner, RandomShooting
from storages.component.hyper_parameters import Count


class MBMPC(ModelPredictiveControl):
    """Nagabandi et al., "Neural Network Dynamics for Model-Based Deep RL with Model-Free Fine-Tuning" (1708.02596).

    It is the model-based part, without the fine-tuning. Rewards and ends of episodes are predicted, too, where the
    paper is given them.
    """

    probabilistic: ClassVar[bool] = False

    planner: Planner = RandomShooting()
    ensemble_size: Count = 1
