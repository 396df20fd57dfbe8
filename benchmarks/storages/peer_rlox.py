"""rlox: buffers of float32 vectors in Rust; tensors share the memory of the arrays that they return."""

from collections.abc import Mapping
from itertools import count, cycle
from typing import Any

import numpy as np
import rlox
import torch

from benchmarks.storages.replay_content import Content, Rollout
from benchmarks.storages.replay_ours import ALPHA, BETA, Library, Sampling, Tensors, Work, error_batches, first_errors


class _Peer:
    name = "rlox"

    def uniform(self, content: Content, batch_size: int) -> Sampling | None:
        if content.stacked_frames:
            return None
        buffer, seeds = rlox.ReplayBuffer(content.transitions, *_sizes(content)), count()
        steps = cycle([_flat(content, step) for step in range(len(content.observation))])
        for _ in range(content.steps):
            buffer.push_batch(*next(steps))
        return lambda: _from_numpy(buffer.sample(batch_size, next(seeds)))

    def n_step(self, content: Content, batch_size: int, n: int) -> None:
        return None

    def prioritized(self, content: Content, batch_size: int) -> Sampling | None:
        if content.stacked_frames:
            return None
        buffer, seeds = rlox.PrioritizedReplayBuffer(content.transitions, *_sizes(content), ALPHA, BETA), count()
        priorities = first_errors(content.transitions).double().tolist()
        steps = cycle([_step(content, step) for step in range(len(content.observation))])
        for priority in priorities:
            buffer.push(*next(steps), priority)
        errors = error_batches(batch_size)

        def call() -> Tensors:
            batch = buffer.sample(batch_size, next(seeds))
            tensors = (*_from_numpy(batch), torch.from_numpy(batch["weights"]))
            buffer.update_priorities(batch["indices"], next(errors).double().numpy())
            return tensors

        return call

    def insertion(self, content: Content) -> Work | None:
        if content.stacked_frames:
            return None
        buffer = rlox.ReplayBuffer(content.transitions, *_sizes(content))
        steps = range(len(content.observation))
        if content.environments == 1:
            single = cycle([_step(content, step) for step in steps])
            for _ in range(content.steps):
                buffer.push(*next(single))
            return lambda: buffer.push(*next(single))
        several = cycle([_flat(content, step) for step in steps])
        for _ in range(content.steps):
            buffer.push_batch(*next(several))
        return lambda: buffer.push_batch(*next(several))

    def advantages(self, rollout: Rollout) -> None:
        return None


def _sizes(content: Content) -> tuple[int, int]:
    return content.observation.shape[-1], content.action.shape[-1]


def _step(content: Content, step: int) -> tuple[Any, ...]:
    """The arguments of ``push``: a step of the only environment."""
    reward, terminated, truncated = content.reward, content.terminated, content.truncated
    return (
        content.observation[step, 0],
        content.action[step, 0],
        float(reward[step, 0, 0]),
        bool(terminated[step, 0, 0]),
        bool(truncated[step, 0, 0]),
        content.next_observation[step, 0],
    )


def _flat(content: Content, step: int) -> tuple[np.ndarray, ...]:
    """The arguments of ``push_batch``: a step of all environments, each array in one dimension."""
    arrays = (content.observation, content.next_observation, content.action, content.reward)
    flags = (content.terminated, content.truncated)
    return (*(array[step].ravel() for array in arrays), *(flag[step].ravel().astype(np.uint8) for flag in flags))


def _from_numpy(batch: Mapping[str, np.ndarray]) -> Tensors:
    return tuple(torch.from_numpy(batch[key]) for key in ("obs", "actions", "rewards", "next_obs", "terminated"))


PEERS: list[Library] = [_Peer()]
