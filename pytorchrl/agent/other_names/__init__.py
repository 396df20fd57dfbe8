"""Names that other libraries use for the hyper-parameters of algorithms and actors."""

from pytorchrl.agent.other_names.hyper_parameters import ACTOR_NAMES, ALGORITHM_NAMES
from pytorchrl.agent.other_names.of_objects import ALGORITHM_METHODS, LEARNER_METHODS

__all__ = ["ACTOR_NAMES", "ALGORITHM_METHODS", "ALGORITHM_NAMES", "LEARNER_METHODS"]
