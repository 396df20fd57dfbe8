"""Names that other libraries use for the hyper-parameters of algorithms and actors."""

from pytorchrl.agent.other_names.hyper_parameters import ACTOR_NAMES, ALGORITHM_NAMES

__all__ = ["ACTOR_NAMES", "ALGORITHM_NAMES"]
