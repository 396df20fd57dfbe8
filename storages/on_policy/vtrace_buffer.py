"""A rollout buffer with V-trace targets, off-policy corrected returns of state values."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.declared import parameter
from storages.component.hyper_parameters import Positive, UnitInterval
from storages.core.kernels.returns import vtrace
from storages.on_policy.estimators import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.protocols import PolicyEvaluation
from storages.transition import ADV, RET


class VTraceBuffer(VanillaOnPolicyBuffer):
    """Rollouts with V-trace targets: Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4.1.

    Before each update phase the current actor evaluates values, and log-probabilities of the actions; RET is the
    V-trace target, ADV the policy-gradient advantage, including its weight rho. On-policy, with truncation levels of at
    least 1, RET equals that of :class:`GAEBuffer` with the same lambda.

    Args:
        rho_bar: truncation level of the weight of a TD error; determines the fixed point of the value function.
        c_bar: truncation level of the trace coefficients; determines the speed of convergence.
        trace_lambda: 0 for one-step targets (more bias), 1 for full traces (more variance).
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    rho_bar: Positive = 1.0
    c_bar: Positive = 1.0
    trace_lambda: UnitInterval = 1.0

    needs_log_probs = True
    computed_fields = frozenset({RET, ADV})
    actor: PolicyEvaluation = parameter(kw_only=False)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        assert stream.ratios is not None
        weights = (stream.ratios, gamma, self.rho_bar, self.c_bar, self.trace_lambda)
        vtrace(rewards, values, next_values, ends, *weights, returns, advantages)

    def streams(self) -> list[RewardStream]:
        """Return the stream of rewards, with the current actor's ratios and values."""
        ratios, values = self.evaluation.ratios_and_values(self.actor.evaluate_actions, 2)
        return [self._environments_stream(values)._replace(ratios=ratios)]
