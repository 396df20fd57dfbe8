"""IMPALA's learner: an actor and a critic that learn from rollouts of weights that may be older than theirs."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C
from storages.component.hyper_parameters import NonNegativeOrSchedule


class IMPALA(A2C):
    """Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4: A2C on V-trace targets.

    ``VTraceBuffer`` compares the probability of each action now with that when it was taken, which is stored, and
    makes targets and advantages, the truncated importance weights in them, that hold for the present weights.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", older_policies=True)}

    lr: NonNegativeOrSchedule = 6e-4
