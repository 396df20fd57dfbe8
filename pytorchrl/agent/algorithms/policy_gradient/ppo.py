"""PPO: policy gradients on rollouts, each used for several epochs within a clipped distance."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import torch

from pytorchrl.agent.algorithms.policy_gradient.parts.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueFit
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, Positive, Within
from storages.storage import Storage
from storages.transition import LOGP, RET, VAL

_CHANGE_OF_LR = 1.5
_MOST_CHANGES_OF_LR = 11  # to 86 times the learning rate, or a 86th of it


class PPO(PolicyAndValue):
    """Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    Adam's epsilon is that of the paper's implementation.

    Args:
        clip_param: how far the ratio of probabilities may move before its gradient stops.
        dual_clip: the objective of an action with a negative advantage is at least so many times that advantage (Ye et
            al., arXiv 1912.09729, equation 5), however likely the action has become; None bounds nothing.
        use_clipped_value_loss: keep new values within ``value_clip_param`` of those when acting; for rewards scaled so
            that values change by about that much, else it holds the value function back.
        value_clip_param: how far a value may move before its gradient stops; None takes ``clip_param``.
        target_kl: an update phase ends when the policy has diverged by 1.5 times this; None never ends one.
        desired_kl: after an update phase at the end of which the policy had diverged by more than twice this, the
            learning rate is divided by 1.5; after less than half of it, multiplied. None leaves the learning rate.
    """

    num_epochs: Count = 4
    num_mini_batch: Count = 4
    clip_param: NonNegativeOrSchedule = 0.2
    dual_clip: Annotated[float, Within(1, open=True)] | None = None
    use_clipped_value_loss: bool = False
    value_clip_param: NonNegativeOrSchedule | None = None
    target_kl: Positive | None = None
    desired_kl: Positive | None = None
    optimizer: Optimizer = Adam(eps=1e-5)

    def build(self) -> None:
        """Policy and value function, and how often their learning rate was raised less how often it was lowered."""
        super().build()
        self.training.counters["lr_changes"] = 0

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Learn from the rollout, and adapt the learning rate to how far that moved the policy."""
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
        """The clipped surrogate objective (equation 7), the value function's error and the entropy (equation 9)."""
        taken, clip_param = self.likelihood(rows), self.current(self.clip_param)
        log_ratio = taken.log_prob - rows[LOGP]
        ratio = log_ratio.exp()
        # Schulman's estimate of the divergence: unbiased, never negative, of low variance.
        divergence = rows.mean(ratio - 1 - log_ratio)
        if self.target_kl is not None and divergence > 1.5 * self.target_kl:
            return Losses({}, {"kl": divergence}, stop=True)

        advantages = self.advantages(rows)
        clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
        # A ratio's derivative by the log probability is the ratio itself; what is clipped has none.
        free, clipped = ratio * advantages, clipped_ratio * advantages
        gain, slope = torch.minimum(free, clipped), torch.where(free > clipped, 0.0, free)
        if self.dual_clip is not None:
            least = torch.where(advantages < 0, self.dual_clip * advantages, -torch.inf)
            gain, slope = torch.maximum(gain, least), torch.where(gain < least, 0.0, slope)
        clip_fraction = rows.mean((clipped_ratio != ratio).float())
        return self.summed(rows, taken, gain, slope, kl=divergence, clip_fraction=clip_fraction)

    def fit_value(self, rows: Rows) -> ValueFit:
        """Half the mean squared distance of values to returns, clipped where the hyper-parameter says so."""
        if not self.use_clipped_value_loss:
            return super().fit_value(rows)
        value = self.value(rows.now)
        reach = self.current(self.clip_param if self.value_clip_param is None else self.value_clip_param)
        near = rows[VAL] + (value - rows[VAL]).clamp(-reach, reach)
        loss = torch.maximum((value - rows[RET]).square(), (near - rows[RET]).square())
        return ValueFit(0.5 * rows.mean(loss), {})


def _change(kl: float) -> int:
    """Of the learning rate's exponent, after a divergence so many times the desired one."""
    return -1 if kl > 2 else int(kl < 0.5)
