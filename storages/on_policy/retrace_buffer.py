"""A rollout buffer with Retrace targets, off-policy corrected returns of Q-values."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.declared import parameter
from storages.component.hyper_parameters import UnitInterval
from storages.core.kernels.returns import retrace
from storages.on_policy.estimators import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.protocols import ActionValueEvaluation, Discounting, Environments
from storages.transition import ADV, RET


class RetraceBuffer(VanillaOnPolicyBuffer):
    """Rollouts with Retrace targets: Munos et al., arXiv 1606.02647, equations 3 and 4.

    Samples hold LOGP, the log-probability of the action under the behaviour policy; VAL is not needed. Before each
    update phase the current actor evaluates log-probabilities and Q-values of the actions, and V, the expected Q-value
    under its policy. RET is the Retrace target of Q, ADV is RET - V.

    Args:
        trace_lambda: 0 for one-step targets; 1 for traces cut by the truncated importance ratios alone.

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
                f"which returns log-probabilities and values of actions, and values of observations; VTraceBuffer "
                f"needs no values of actions"
            )
        super().build(device, actor, algorithm, envs)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        rewards, values, next_values, ends, gamma, *_ = stream
        assert stream.ratios is not None
        assert stream.action_values is not None
        weights = (stream.ratios, gamma, self.trace_lambda)
        retrace(rewards, stream.action_values, next_values, ends, *weights, returns)
        np.subtract(returns, values, out=advantages)

    def streams(self) -> list[RewardStream]:
        """Return the stream of rewards, with the current actor's ratios, Q-values and values."""
        ratios, action_values, values = self.evaluation.ratios_and_values(self.actor.evaluate_action_values, 3)
        return [self._environments_stream(values)._replace(ratios=ratios, action_values=action_values)]
