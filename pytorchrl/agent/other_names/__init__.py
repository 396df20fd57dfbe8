"""Names that other libraries use for the hyper-parameters of algorithms and actors."""

from pytorchrl.agent.other_names.actors import ACTOR_NAMES
from pytorchrl.agent.other_names.algorithms import ALGORITHM_NAMES

__all__ = ["ACTOR_NAMES", "ALGORITHM_NAMES"]
