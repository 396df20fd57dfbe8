"""A rollout that an older policy may have made: V-trace corrects for the difference."""

from typing import Any

import numpy as np
import torch

from storages.core.fields import SampleError
from storages.core.kernels.returns import vtrace
from storages.hyper_parameters import Count, Positive, UnitInterval
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.storage import Discounting, Environments, PolicyEvaluation
from storages.transition import ACT, ADV, DONE, LOGP, OBS, RET, REW, RHS, Sample


class VTraceBuffer(VanillaOnPolicyBuffer):
    """Rollouts with V-trace targets: Espeholt et al., "IMPALA" (arXiv 1802.01561), section 4.1.

    Before each update phase the current actor is asked for its values and its probabilities of what was done; RET is
    the V-trace target, ADV the policy-gradient advantage, its weight rho in it. Where the current policy is the one
    that acted, and with truncation levels from 1 on, RET is what :class:`GAEBuffer` makes with the same lambda.

    Args:
        size: steps of a rollout; ``size * num_envs`` transitions.
        rho_bar: truncation level of an error's importance weight: what the value function converges to.
        c_bar: truncation level of the weight of what follows: how fast it does.
        trace_lambda: 0 trusts the value function, 1 the rewards.
        sequence_length: steps of the sequences that an actor with memory learns from; None takes whole rollouts.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    actor: PolicyEvaluation

    def __init__(
        self,
        device: torch.device | str,
        actor: PolicyEvaluation,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        rho_bar: Positive = 1.0,
        c_bar: Positive = 1.0,
        trace_lambda: UnitInterval = 1.0,
        sequence_length: Count | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        super().__init__(
            device, actor, algorithm, envs, size, sequence_length=sequence_length, allow_nonfinite=allow_nonfinite
        )
        self.rho_bar = rho_bar
        self.c_bar = c_bar
        self.trace_lambda = trace_lambda

    def insert_transition(self, sample: Sample) -> None:
        """Store one step of the rollout; needs VAL and LOGP beside what every storage needs.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            RuntimeError: the rollout is full and was not reset.
        """
        if LOGP not in sample:
            raise SampleError(
                f"{type(self).__name__}: a sample needs {LOGP}, which says what the policy that acted thought of its "
                f"action; got {list(sample)}"
            )
        super().insert_transition(sample)

    def before_gradients(self) -> None:
        """Make RET and ADV of the rollout so far, as the current actor sees it.

        Raises:
            EmptyStorageError: nothing is stored yet.
        """
        self._refuse_if_empty()
        ring = self._ring
        for key in (RET, ADV):
            ring.add_computed(key, (1,), np.dtype(np.float32))
        rollout = self._slice(0, ring.live_steps, self.device)
        rhs: Any = rollout[RHS][0] if RHS in rollout else None
        with torch.no_grad():
            log_probs, estimates = self.actor.evaluate_actions(rollout[OBS], rhs, rollout[DONE], rollout[ACT])
        values = estimates.cpu().numpy()[..., 0]
        ratios = (log_probs - rollout[LOGP]).exp().cpu().numpy()[..., 0]
        returns, advantages = ring.rollout(RET)[..., 0], ring.rollout(ADV)[..., 0]
        vtrace(
            ring.rollout(REW)[..., 0],
            values,
            self._next_values(values),
            ring.broken(),
            ratios,
            self.algorithm.gamma,
            self.rho_bar,
            self.c_bar,
            self.trace_lambda,
            returns,
            advantages,
        )
