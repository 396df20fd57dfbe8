"""tianshou: buffers of numpy arrays, kernels in numba; n-step returns are summed by the algorithm that samples."""

from itertools import cycle
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm, _gae
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer, VectorReplayBuffer

from benchmarks.storages.replay_content import GAMMA, Content, Rollout
from benchmarks.storages.replay_ours import (
    ALPHA,
    BETA,
    GAE_LAMBDA,
    Library,
    Sampling,
    Tensors,
    Work,
    error_batches,
    first_errors,
)


class _Peer:
    name = "tianshou"

    def uniform(self, content: Content, batch_size: int) -> Sampling:
        buffer = self._filled(content)
        return lambda: _from_attributes(buffer.sample(batch_size)[0])

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling:
        buffer, nothing = self._filled(content), torch.zeros(batch_size)
        followed: list[torch.Tensor] = []

        def target(buffer: Any, indices: np.ndarray) -> torch.Tensor:
            # The target network would run here; its inputs are fetched, as for the other libraries.
            followed[:] = torch.from_numpy(buffer.obs_next[indices]), torch.from_numpy(buffer.terminated[indices])
            return nothing

        def call() -> Tensors:
            indices = buffer.sample_indices(batch_size)
            batch = Batch(obs=buffer.obs[indices], act=buffer.act[indices])
            batch = Algorithm.compute_nstep_return(batch, buffer, indices, target, GAMMA, n)
            observations, actions = torch.from_numpy(batch.obs), torch.from_numpy(batch.act)
            return observations, actions, batch.returns, *followed

        return call

    def prioritized(self, content: Content, batch_size: int) -> Sampling:
        buffer = PrioritizedReplayBuffer(content.transitions, ALPHA, BETA)
        buffer.update(self._filled(content))
        buffer.update_weight(np.arange(content.transitions), first_errors(content.transitions).numpy())
        errors = error_batches(batch_size)

        def call() -> Tensors:
            batch, indices = buffer.sample(batch_size)
            tensors = (*_from_attributes(batch), torch.from_numpy(batch.weight))
            buffer.update_weight(indices, next(errors))
            return tensors

        return call

    def insertion(self, content: Content) -> Work:
        several = content.environments > 1
        if several:
            buffer = VectorReplayBuffer(content.transitions, content.environments)
        else:
            buffer = ReplayBuffer(content.transitions)
        which = slice(None) if several else 0
        steps = cycle(
            [
                {
                    "obs": content.observation[step, which],
                    "act": content.action[step, which],
                    "rew": content.reward[step, which, 0],
                    "terminated": content.terminated[step, which, 0],
                    "truncated": content.truncated[step, which, 0],
                    "obs_next": content.next_observation[step, which],
                }
                for step in range(len(content.observation))
            ]
        )

        def call() -> None:
            buffer.add(Batch(**next(steps)))

        for _ in range(content.steps):
            call()
        return call

    def advantages(self, rollout: Rollout) -> Work:
        """The compiled function beneath ``Algorithm.compute_episodic_return``, environments one after the other."""
        rewards, values, next_values, ends = (
            np.ascontiguousarray(array.T).ravel()
            for array in (rollout.rewards, rollout.values, rollout.next_values, rollout.ends)
        )
        ends[len(rollout.rewards) - 1 :: len(rollout.rewards)] = True

        def call() -> None:
            advantages = _gae(values, next_values, rewards, ends, GAMMA, GAE_LAMBDA)
            _ = advantages + values

        return call

    def _filled(self, content: Content) -> Any:
        return ReplayBuffer.from_data(
            obs=content.stream(content.observation),
            act=content.stream(content.action),
            rew=content.stream(content.reward[..., 0]),
            terminated=content.stream(content.terminated[..., 0]),
            truncated=content.stream(content.truncated[..., 0]),
            done=content.stream(content.done[..., 0]),
            obs_next=content.stream(content.next_observation),
        )


def _from_attributes(batch: Any) -> Tensors:
    arrays = batch.obs, batch.act, batch.rew, batch.obs_next, batch.terminated
    return tuple(map(torch.from_numpy, arrays))


PEERS: list[Library] = [_Peer()]
