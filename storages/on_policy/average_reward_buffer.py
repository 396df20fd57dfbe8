"""A rollout whose advantages compare rewards with their average, for tasks that go on without a discount."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.generated_init import with_hyper_parameters
from storages.component.hyper_parameters import UnitInterval
from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.on_policy.estimators import RewardStream
from storages.on_policy.gae_buffer import GAEBuffer
from storages.protocols import Discounting, Environments
from storages.transition import ADV, RET


@with_hyper_parameters
class AverageRewardBuffer(GAEBuffer):
    """Rollouts with advantages of the average-reward criterion: Zhang and Ross, ATRPO, arXiv 2106.07329.

    ``A_t = delta_t + lambda * A_{t+1}``, ``delta_t = r_t - rho + V(s') - V(s)``, without a discount: the algorithm's
    ``gamma`` counts for nothing here. ``rho`` is the average reward of a step. RET is ADV + VAL. Values are known up
    to a constant alone; an algorithm that lets them drift may subtract their mean.

    Args:
        gae_lambda: 0 trusts the value function (one-step errors), 1 the rewards.
        average_step_size: share of the newest rollout in ``rho``, a moving average over rollouts, as of Ma et al. (APO,
            arXiv 2106.03442); with 1 it is the mean of the rollout.
    """

    average_step_size: UnitInterval = 1.0

    computed_fields = frozenset({RET, ADV})

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        super().build(device, actor, algorithm, envs)
        self.average = AverageReward()
        """The average reward of a step."""
        self.observe(self.average)

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
        ring = self._ring
        mean = float(stream.rewards[~ring.skipped()].mean(dtype=np.float64))
        rewards = stream.rewards - self.average.of(ring.oldest, mean, self.average_step_size)
        super().estimate(stream._replace(rewards=rewards, gamma=1.0), returns, advantages)


class AverageReward(RingObserver):
    """A moving average over rollouts, in which each counts once however often it is asked for."""

    def __init__(self) -> None:
        self.before: float | None = None
        """Of the rollouts before the current one; None where there was none."""
        self.current: float | None = None
        """With the current rollout; None before the first."""
        self._rollout = -1

    def of(self, rollout: int, mean: float, step_size: float) -> float:
        """Return the average with the mean of a rollout, which a number identifies."""
        if rollout != self._rollout:
            self.before, self._rollout = self.current, rollout
        self.current = mean if self.before is None else self.before + step_size * (mean - self.before)
        return self.current

    def state_dict(self) -> dict[str, Any]:
        """The averages, and which rollout is the current one."""
        return {"average_reward": [self.before, self.current, self._rollout]}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the averages, if the state has any."""
        self.before, self.current, self._rollout = state.get("average_reward", (None, None, -1))
