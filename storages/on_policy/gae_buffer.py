"""A rollout buffer with generalized advantage estimation (GAE)."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.declared import parameter
from storages.component.hyper_parameters import UnitInterval
from storages.core.kernels.returns import generalized_advantages
from storages.on_policy.estimators import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer


class GAEBuffer(VanillaOnPolicyBuffer):
    """Rollouts with generalized advantage estimates (Schulman et al., arXiv 1506.02438); RET is ADV + VAL.

    Args:
        gae_lambda: 0 for one-step TD errors (more bias), 1 for Monte Carlo returns (more variance).
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    gae_lambda: UnitInterval = parameter(default=0.95, kw_only=False)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        generalized_advantages(rewards, values, next_values, ends, gamma, self.gae_lambda, advantages)
        np.add(advantages, values, out=returns)
