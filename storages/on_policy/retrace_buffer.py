"""A rollout that an older policy may have made, with targets of action values: Retrace corrects for the difference."""

from typing import Any, ClassVar, Literal

import torch

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import UnitInterval
from storages.on_policy.estimators import Estimator, Retrace, RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.protocols import ActionValueEvaluation, Discounting, Environments
from storages.transition import ADV, DONE2, RET, REW


@with_hyper_parameters
class RetraceBuffer(VanillaOnPolicyBuffer):
    """Rollouts with Retrace targets: Munos et al., arXiv 1606.02647, equations 3 and 4.

    Samples hold LOGP, the log probability of the action under the policy that acted; VAL is not needed. Before each
    update phase the current actor is asked for its own probabilities, for Q of what was done, and for the mean V of Q
    under its policy. RET is the Retrace target of Q, ADV is RET - V.

    Args:
        trace_lambda: 0 makes one-step targets; 1 leans on Q as little as the two policies allow.

    Raises:
        ValueError: the actor has no ``evaluate_action_values``.
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    trace_lambda: UnitInterval = 1.0

    needs_log_probs = True
    needs_action_values = True
    needs_values = False
    computed_fields = frozenset({RET, ADV})
    actor: ActionValueEvaluation = parameter(kw_only=False)

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        if not hasattr(actor, "evaluate_action_values"):
            raise ValueError(
                f"{type(self).__name__}: {type(actor).__name__} has no evaluate_action_values(obs, rhs, done, action), "
                f"whose answers are log probabilities and values of actions and values of observations; VTraceBuffer "
                f"does with values of observations"
            )
        super().build(device, actor, algorithm, envs)

    def make_estimator(self) -> Estimator:
        """Make the part that says what returns and advantages are."""
        return Retrace(self.trace_lambda)

    def streams(self) -> list[RewardStream]:
        """Return the rewards of the rollout, with what the current actor makes of it."""
        ring, evaluation = self._ring, self.evaluation
        ratios, action_values, values = evaluation.ratios_and_values(self.actor.evaluate_action_values, 3)
        broken, terminated = ring.broken(), ring.rollout(DONE2)[..., 0]
        next_values = evaluation.next_values(values, broken, terminated, self.actor.value)
        rewards = ring.rollout(REW)[..., 0]
        return [RewardStream(rewards, values, next_values, broken, self._gamma, RET, ADV, ratios, action_values)]
