"""A rollout whose advantages trade bias for variance: generalized advantage estimation."""

from typing import ClassVar, Literal

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import UnitInterval
from storages.on_policy.estimators import Estimator, GeneralizedAdvantages
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer


@with_hyper_parameters
class GAEBuffer(VanillaOnPolicyBuffer):
    """Rollouts with generalized advantage estimates (Schulman et al., arXiv 1506.02438); RET is ADV + VAL.

    Args:
        gae_lambda: 0 trusts the value function (one-step errors), 1 the rewards (whole returns).
    """

    cut_episodes: ClassVar[Literal["bootstrap"]] = "bootstrap"  # type: ignore[misc]
    gae_lambda: UnitInterval = parameter(default=0.95, kw_only=False)

    def make_estimator(self) -> Estimator:
        """Make the part that says what returns and advantages are."""
        return GeneralizedAdvantages(self.gae_lambda)
