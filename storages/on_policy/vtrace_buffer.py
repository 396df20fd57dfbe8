"""A rollout that an older policy may have made: V-trace corrects for the difference."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import Positive, UnitInterval
from storages.core.kernels.returns import vtrace
from storages.on_policy.estimators import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.protocols import PolicyEvaluation
from storages.transition import ADV, RET


@with_hyper_parameters
class VTraceBuffer(VanillaOnPolicyBuffer):
    """Rollouts with V-trace targets: Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4.1.

    Before each update phase the current actor is asked for its values and its probabilities of what was done; RET is
    the V-trace target, ADV the policy-gradient advantage, its weight rho in it. Where the current policy is the one
    that acted, and with truncation levels from 1 on, RET is what :class:`GAEBuffer` makes with the same lambda.

    Args:
        rho_bar: truncation level of an error's importance weight: what the value function converges to.
        c_bar: truncation level of the weight of what follows: how fast it does.
        trace_lambda: 0 trusts the value function, 1 the rewards.
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
        """Return the rewards of the rollout, with what the current actor makes of it."""
        ratios, values = self.evaluation.ratios_and_values(self.actor.evaluate_actions, 2)
        return [self._environments_stream(values)._replace(ratios=ratios)]
