"""A rollout buffer for the average-reward criterion, for continuing tasks without discounting."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.hyper_parameters import UnitInterval
from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.on_policy.estimators import RewardStream
from storages.on_policy.gae_buffer import GAEBuffer
from storages.protocols import Discounting, Environments
from storages.transition import ADV, RET


class AverageRewardBuffer(GAEBuffer):
    """Rollouts with advantages of the average-reward criterion: Zhang and Ross, ATRPO, arXiv 2106.07329.

    ``A_t = delta_t + lambda * A_{t+1}``, ``delta_t = r_t - rho + V(s') - V(s)``, without a discount: the algorithm's
    ``gamma`` is ignored. ``rho`` is the average reward per step. RET is ADV + VAL. Values are determined only up to a
    constant; an algorithm may subtract their mean to keep them from drifting.

    Args:
        gae_lambda: 0 for one-step TD errors (more bias), 1 for sums of rewards (more variance).
        average_step_size: step size of ``rho``, an exponential moving average over rollouts, as in Ma et al. (APO,
            arXiv 2106.03442); with 1 it is the mean of the newest rollout.
    """

    average_step_size: UnitInterval = 1.0

    computed_fields = frozenset({RET, ADV})

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        super().build(device, actor, algorithm, envs)
        self.average = AverageReward()
        """The average reward per step."""
        self.observers.add(self.average)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        ring, average = self.ring, self.average
        paid = stream.rewards[~ring.skipped()]
        if paid.size:
            current = average.of(ring.oldest, float(paid.mean(dtype=np.float64)), self.average_step_size)
        else:
            # A rollout of skipped steps alone has no mean, and no batches.
            current = average.current or 0.0
        rewards = stream.rewards - current
        super().estimate(stream._replace(rewards=rewards, gamma=1.0), returns, advantages)


class AverageReward(RingObserver):
    """Exponential moving average over rollouts, in which each counts once even if it is evaluated repeatedly."""

    def __init__(self) -> None:
        self.before: float | None = None
        """Average before the current rollout; None where there was none."""
        self.current: float | None = None
        """Average including the current rollout; None before the first."""
        self._rollout = -1

    def of(self, rollout: int, mean: float, step_size: float) -> float:
        """Return the average including a rollout's mean reward; ``rollout`` is a number that identifies it."""
        if rollout != self._rollout:
            self.before, self._rollout = self.current, rollout
        self.current = mean if self.before is None else self.before + step_size * (mean - self.before)
        return self.current

    def state_dict(self) -> dict[str, Any]:
        """Return the averages and the number of the current rollout."""
        return {"average_reward": [self.before, self.current, self._rollout]}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the averages, if the state has any."""
        self.before, self.current, self._rollout = state.get("average_reward", (None, None, -1))
