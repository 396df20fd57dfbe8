"""IMPALA: advantage actor-critic with V-trace correction for rollouts of older policies."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C
from storages.component.hyper_parameters import NonNegativeOrSchedule


class IMPALA(A2C):
    """Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4: A2C on V-trace targets.

    ``VTraceBuffer`` computes truncated importance weights from the current and the stored log-probabilities of actions,
    and from those the V-trace targets and advantages of the current policy.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", older_policies=True)}

    lr: NonNegativeOrSchedule = 6e-4
