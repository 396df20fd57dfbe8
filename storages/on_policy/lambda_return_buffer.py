"""A rollout with lambda returns, of state values or of action values."""

from typing import ClassVar, Literal

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import UnitInterval
from storages.on_policy.estimators import Estimator, LambdaReturns
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer


@with_hyper_parameters
class LambdaReturnBuffer(VanillaOnPolicyBuffer):
    """Rollouts with lambda returns (Sutton and Barto, "Reinforcement Learning", 2018, equation 12.2); ADV is RET - VAL.

    ``G_t = r_t + gamma * ((1 - lambda) * V(s') + lambda * G_{t+1})``. V is what samples hold as VAL and the actor
    answers: of a critic, for TD(lambda) and Dreamer (arXiv 1912.01603, equation 6); the largest action value, for the
    Q(lambda) of PQN (arXiv 2407.04811), whose RET is the target of the action that was done.

    Args:
        trace_lambda: 0 makes one-step targets, 1 whole returns.
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    trace_lambda: UnitInterval = parameter(default=0.95, kw_only=False)

    def make_estimator(self) -> Estimator:
        """Make the part that says what returns and advantages are."""
        return LambdaReturns(self.trace_lambda)
