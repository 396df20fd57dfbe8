"""A rollout that an older policy may have made: V-trace corrects for the difference."""

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import Positive, UnitInterval
from storages.core.device.transfer import to_batch
from storages.core.kernels.returns import vtrace
from storages.core.ring.layout import SCALAR
from storages.core.windows.segments import in_time
from storages.on_policy.answers import checked_answer
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.protocols import PolicyEvaluation
from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, RET, REW, RHS


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

    def before_gradients(self) -> None:
        """Make RET and ADV of the rollout so far, as the current actor sees it.

        Raises:
            EmptyStorageError: nothing is stored yet.
            ValueError: the actor's answers are not one finite number for each observation; nothing was made.
        """
        self._refuse_if_empty()
        ring = self._ring
        ratios, values = self._as_the_current_actor_sees_it()
        broken = ring.broken()
        next_values = self._next_values(values, broken, ring.rollout(DONE2)[..., 0])
        for key in (RET, ADV):
            ring.columns.add_computed(key, SCALAR)
        returns, advantages = ring.rollout(RET)[..., 0], ring.rollout(ADV)[..., 0]
        vtrace(
            ring.rollout(REW)[..., 0],
            values,
            next_values,
            broken,
            ratios,
            self._gamma,
            self.rho_bar,
            self.c_bar,
            self.trace_lambda,
            returns,
            advantages,
        )

    def _as_the_current_actor_sees_it(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(T, E) each: the importance ratio of what was done, and the value of what was seen."""
        ring, envs = self._ring, self.num_envs
        remembers = (RHS,) in ring.layout
        # A memory runs through the whole rollout; else parts bound what an actor's layers take.
        steps = ring.live_steps if remembers else max(1, _EVALUATED_AT_ONCE // envs)
        ratios, values = np.empty((2, ring.live_steps, envs), np.float32)
        for start in range(0, ring.live_steps, steps):
            part = slice(start, min(start + steps, ring.live_steps))
            transitions = np.arange((ring.oldest + part.start) * envs, (ring.oldest + part.stop) * envs)
            shape = (part.stop - part.start, envs)
            seen = ring.gather(transitions, {OBS, DONE, ACT, LOGP})
            fields = {key: in_time(value, shape) for key, value in seen.items()}
            if remembers:
                # Another stream of experience does not continue the memory of the one before it.
                fields[DONE] = np.maximum(fields[DONE], self._begins().reshape(*shape, 1))
            batch = to_batch(fields | ring.gather(transitions[:envs], {RHS}), self.device)
            with torch.no_grad():
                answers = self.actor.evaluate_actions(batch[OBS], batch.get(RHS), batch[DONE], batch[ACT])
            log_probs, values[part] = (
                checked_answer(answer, (*shape, 1), "actor.evaluate_actions", type(self).__name__, self.allow_nonfinite)
                for answer in answers
            )
            ratios[part] = np.exp(log_probs - seen[LOGP].reshape(shape))
        return ratios, values


_EVALUATED_AT_ONCE = 512
"""Transitions; so many stacks of four frames of 84 x 84 are 58 MB as float32."""
