"""PPO: policy gradients with a clipped surrogate objective and several epochs per rollout."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import torch

from pytorchrl.agent.algorithms.policy_gradient.parts.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueFit
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.component.hyper_parameters import Count, LimitOrSchedule, Positive, Within
from storages.storage import Storage
from storages.transition import LOGP, RET, VAL

_CHANGE_OF_LR = 1.5
_MOST_CHANGES_OF_LR = 11  # a factor of 86 in either direction


class PPO(PolicyAndValue):
    """Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    Adam's epsilon is that of the paper's implementation.

    Args:
        clip_param: clipping range of the probability ratio (epsilon).
        dual_clip: lower bound of the objective at negative advantages, as a multiple of the advantage (Ye et al.,
            arXiv 1912.09729, equation 5); None for no bound.
        use_clipped_value_loss: clip new values to within ``value_clip_param`` of the stored ones; slows the value
            function down unless rewards are scaled so that values change by about that much.
        value_clip_param: clipping range of values; None takes ``clip_param``.
        target_kl: an update phase stops early once the KL divergence exceeds 1.5 times this; None never stops.
        desired_kl: the learning rate is divided by 1.5 after an update phase whose last KL divergence exceeds twice
            this, and multiplied by 1.5 if it is below half of this; None does not adapt it.
    """

    num_epochs: Count = 4
    num_mini_batch: Count = 4
    clip_param: LimitOrSchedule = 0.2
    dual_clip: Annotated[float, Within(1, open=True)] | None = None
    use_clipped_value_loss: bool = False
    value_clip_param: LimitOrSchedule | None = None
    target_kl: Positive | None = None
    desired_kl: Positive | None = None
    optimizer: Optimizer = Adam(eps=1e-5)

    def build(self) -> None:
        """Make policy and value function, and the exponent of the adaptive learning rate."""
        super().build()
        self.training.counters["lr_changes"] = 0

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Run one update phase, then adapt the learning rate to the KL divergence."""
        metrics: Metrics = {}
        for metrics in super().update_phase(sources):
            yield metrics
        if self.desired_kl is not None and metrics:
            changes = self.training.counters["lr_changes"] + _change(float(metrics["kl"]) / self.desired_kl)
            self.training.counters["lr_changes"] = max(-_MOST_CHANGES_OF_LR, min(changes, _MOST_CHANGES_OF_LR))
            self._follow_schedules()

    def _follow_schedules(self) -> None:
        super()._follow_schedules()
        self.trained.stepper.learning_rate *= _CHANGE_OF_LR ** self.training.counters["lr_changes"]

    def losses(self, rows: Rows) -> Losses:
        """Return the clipped surrogate (equation 7), value and entropy losses (equation 9)."""
        taken, clip_param = self.taken(rows), self.current(self.clip_param)
        log_ratio = taken.log_prob - rows[LOGP]
        ratio = log_ratio.exp()
        # Schulman's "k3" estimate of the KL divergence: unbiased, non-negative, of low variance.
        divergence = rows.mean(ratio - 1 - log_ratio)
        if self.target_kl is not None and divergence > 1.5 * self.target_kl:
            return Losses({}, {"kl": divergence}, stop=True)

        advantages = self.advantages(rows)
        clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
        # The derivative of the ratio by the log-probability is the ratio itself, and 0 where it is clipped.
        free, clipped = ratio * advantages, clipped_ratio * advantages
        gain, slope = torch.minimum(free, clipped), torch.where(free > clipped, 0.0, free)
        if self.dual_clip is not None:
            least = torch.where(advantages < 0, self.dual_clip * advantages, -torch.inf)
            gain, slope = torch.maximum(gain, least), torch.where(gain < least, 0.0, slope)
        clip_fraction = rows.mean((clipped_ratio != ratio).float())
        return self.summed(rows, taken, gain, slope, kl=divergence, clip_fraction=clip_fraction)

    def fit_value(self, rows: Rows) -> ValueFit:
        """Return half the mean squared error of values, clipped if ``use_clipped_value_loss``."""
        if not self.use_clipped_value_loss:
            return super().fit_value(rows)
        value = self.value(rows.now)
        reach = self.current(self.clip_param if self.value_clip_param is None else self.value_clip_param)
        near = rows[VAL] + (value - rows[VAL]).clamp(-reach, reach)
        loss = torch.maximum((value - rows[RET]).square(), (near - rows[RET]).square())
        return ValueFit(0.5 * rows.mean(loss), {})


def _change(kl: float) -> int:
    """Return the change of the learning rate's exponent; ``kl`` is relative to the desired divergence."""
    return -1 if kl > 2 else int(kl < 0.5)
