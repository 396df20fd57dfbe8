"""PPO: policy gradients with a clipped surrogate objective and several epochs per rollout."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import torch

from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.component.hyper_parameters import (
    Count,
    LimitOrSchedule,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    Within,
)
from storages.storage import Storage
from storages.transition import LOGP, RET, VAL

_CHANGE_OF_LR = 1.5
_MOST_CHANGES_OF_LR = 11  # a factor of 86 in either direction


class PPO(PolicyGradient):
    """Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    Adam's epsilon is that of the paper's implementation.

    Args:
        lr: learning rate.
        value_loss_coef: weight of the value function's loss (c_1).
        entropy_coef: weight of the entropy bonus (c_2).
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
    lr: NonNegativeOrSchedule = 3e-4
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegative = 0.0
    max_grad_norm: Positive | None = 0.5
    clip_param: LimitOrSchedule = 0.2
    dual_clip: Annotated[float, Within(1, open=True)] | None = None
    use_clipped_value_loss: bool = False
    value_clip_param: LimitOrSchedule | None = None
    target_kl: Positive | None = None
    desired_kl: Positive | None = None
    optimizer: Optimizer = Adam(eps=1e-5)

    def build(self) -> None:
        """Make policy and value function, trained together, and the exponent of the adaptive learning rate."""
        self.trained = self.train("policy_and_value", *self.make_networks())
        self.training.counters["lr_changes"] = 0

    def losses(self, rows: Rows) -> Losses:
        """Return the joint loss (equation 9) of the clipped surrogate (equation 7), value function and entropy."""
        advantages, epsilon = self.advantages(rows), self.current(self.clip_param)
        surrogate = self.policy(rows.now, None).clipped_surrogate(
            rows.action, rows[LOGP], advantages, rows.mean_weights, epsilon, self.dual_clip
        )
        if self.target_kl is not None and surrogate.divergence > 1.5 * self.target_kl:
            return Losses({}, {"kl": surrogate.divergence}, stop=True)

        value, target = self.value(rows.now), rows[RET]
        error = (value - target).square()
        of_values: Metrics = {}
        if self.use_clipped_value_loss:
            reach = epsilon if self.value_clip_param is None else self.current(self.value_clip_param)
            change = value - rows[VAL]
            near = rows[VAL] + change.clamp(-reach, reach)
            error = torch.maximum(error, (near - target).square())
            of_values = {"value_clip_fraction": rows.mean((change.detach().abs() > reach).to(error))}

        policy_loss, value_loss = -surrogate.objective, 0.5 * rows.mean(error)
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * surrogate.entropy
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": surrogate.entropy.detach(),
            "kl": surrogate.divergence,
            "clip_fraction": surrogate.clip_fraction,
            **of_values,
        }
        return Losses({self.trained: loss}, metrics)

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


def _change(kl: float) -> int:
    """Return the change of the learning rate's exponent; ``kl`` is relative to the desired divergence."""
    return -1 if kl > 2 else int(kl < 0.5)
