"""Names that other libraries use for hyper-parameters, arguments and methods."""

from pytorchrl.agent.other_names.arguments import (
    CALLBACK_NAMES,
    ENVIRONMENT_NAMES,
    LEARNER_NAMES,
    LOADING_NAMES,
    OF_PARTS,
    POLICY_NAMES,
    SCHEME_NAMES,
)
from pytorchrl.agent.other_names.hyper_parameters import ACTOR_NAMES, ALGORITHM_NAMES
from pytorchrl.agent.other_names.of_objects import (
    ACTOR_METHODS,
    AGENT_METHODS,
    ALGORITHM_METHODS,
    CALLBACK_ATTRIBUTES,
    LEARNER_METHODS,
    POLICY_METHODS,
    SCHEME_METHODS,
    VEC_ENV_METHODS,
)

__all__ = [
    "ACTOR_METHODS",
    "ACTOR_NAMES",
    "AGENT_METHODS",
    "ALGORITHM_METHODS",
    "ALGORITHM_NAMES",
    "CALLBACK_ATTRIBUTES",
    "CALLBACK_NAMES",
    "ENVIRONMENT_NAMES",
    "LEARNER_METHODS",
    "LEARNER_NAMES",
    "LOADING_NAMES",
    "OF_PARTS",
    "POLICY_METHODS",
    "POLICY_NAMES",
    "SCHEME_METHODS",
    "SCHEME_NAMES",
    "VEC_ENV_METHODS",
]
