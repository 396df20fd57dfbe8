"""A rollout whose advantages trade bias for variance: generalized advantage estimation."""

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.hyper_parameters import Count, UnitInterval
from storages.core.kernels.returns import generalized_advantages
from storages.on_policy.reward_stream import RewardStream
from storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer
from storages.storage import Discounting, Environments, ValueFunction


class GAEBuffer(VanillaOnPolicyBuffer):
    """Rollouts with generalized advantage estimates (Schulman et al., arXiv 1506.02438); RET is ADV + VAL.

    Args:
        size: steps of a rollout; ``size * num_envs`` transitions.
        gae_lambda: 0 trusts the value function (one-step errors), 1 the rewards (whole returns).
        sequence_length: steps of the sequences that an actor with memory learns from; None takes whole rollouts.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    def __init__(
        self,
        device: torch.device | str,
        actor: ValueFunction,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        gae_lambda: UnitInterval = 0.95,
        *,
        sequence_length: Count | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        super().__init__(
            device, actor, algorithm, envs, size, sequence_length=sequence_length, allow_nonfinite=allow_nonfinite
        )
        self.gae_lambda = gae_lambda

    def _make_returns(
        self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]
    ) -> None:
        rewards, values, next_values, ends = stream.rewards, stream.values, stream.next_values, stream.ends
        generalized_advantages(rewards, values, next_values, ends, stream.gamma, self.gae_lambda, advantages)
        np.add(advantages, values, out=returns)
