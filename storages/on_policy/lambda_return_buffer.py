"""A rollout buffer with lambda returns, of state values or Q-values."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.declared import parameter
from storages.component.hyper_parameters import UnitInterval
from storages.core.kernels.returns import lambda_returns
from storages.on_policy.estimators import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer


class LambdaReturnBuffer(VanillaOnPolicyBuffer):
    """Rollouts with lambda returns (Sutton and Barto, "Reinforcement Learning", 2018, equation 12.2); ADV is RET - VAL.

    ``G_t = r_t + gamma * ((1 - lambda) * V(s') + lambda * G_{t+1})``. V is VAL of the samples and ``value`` of the
    actor: the state value for TD(lambda) and Dreamer (arXiv 1912.01603, equation 6); the largest Q-value for the
    Q(lambda) of PQN (arXiv 2407.04811), where RET is the target of the Q-value of ACT.

    Args:
        trace_lambda: 0 for one-step TD targets, 1 for Monte Carlo returns.
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    trace_lambda: UnitInterval = parameter(default=0.95, kw_only=False)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        lambda_returns(rewards, next_values, ends, gamma, self.trace_lambda, returns)
        np.subtract(returns, values, out=advantages)
