"""cpprb: buffers in C++ behind Cython; n-step returns are summed when steps are inserted."""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import cpprb
import numpy as np
import torch

from benchmarks.storages.replay_content import GAMMA, Content, Rollout
from benchmarks.storages.replay_ours import ALPHA, BETA, Library, Sampling, Tensors, Work, error_batches, first_errors


class _Peer:
    name = "cpprb"

    def uniform(self, content: Content, batch_size: int) -> Sampling:
        buffer = self._filled(cpprb.ReplayBuffer, content)
        return lambda: _from_numpy(buffer.sample(batch_size))

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling:
        options = {"size": n, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
        buffer = self._filled(cpprb.ReplayBuffer, content, Nstep=options)
        return lambda: _from_numpy(buffer.sample(batch_size))

    def prioritized(self, content: Content, batch_size: int) -> Sampling:
        buffer = self._filled(cpprb.PrioritizedReplayBuffer, content, alpha=ALPHA)
        buffer.update_priorities(np.arange(content.transitions), first_errors(content.transitions).numpy())
        errors = error_batches(batch_size)

        def call() -> Tensors:
            batch = buffer.sample(batch_size, BETA)
            tensors = (*_from_numpy(batch), torch.from_numpy(batch["weights"]))
            buffer.update_priorities(batch["indexes"], next(errors).numpy())
            return tensors

        return call

    def insertion(self, content: Content) -> Work:
        buffer = cpprb.ReplayBuffer(content.transitions, _cpprb_fields(content))
        steps = cycle([_cpprb_values(content, step) for step in range(len(content.observation))])
        for _ in range(content.steps):
            buffer.add(**next(steps))
        return lambda: buffer.add(**next(steps))

    def advantages(self, rollout: Rollout) -> None:
        return None

    def _filled(self, buffer_class: Callable[..., Any], content: Content, **options: Any) -> Any:
        buffer = buffer_class(content.transitions, _cpprb_fields(content), **options)
        for length in content.episodes():
            values = _cpprb_values(content, (slice(length), 0))
            # Where it sums n rewards, it does so in place, in the array that it was given.
            buffer.add(**{key: array.copy() for key, array in values.items()})
            buffer.on_episode_end()
        return buffer


def _cpprb_fields(content: Content) -> dict[str, dict[str, Any]]:
    values = _cpprb_values(content, (slice(1), 0))
    return {key: {"shape": array.shape[1:], "dtype": array.dtype} for key, array in values.items()}


def _cpprb_values(content: Content, which: Any) -> dict[str, Any]:
    return {
        "obs": content.observation[which],
        "act": content.action[which],
        "rew": content.reward[which],
        "next_obs": content.next_observation[which],
        "done": content.terminated[which].astype(np.float32),
    }


def _from_numpy(batch: Mapping[str, np.ndarray]) -> Tensors:
    return tuple(torch.from_numpy(batch[key]) for key in ("obs", "act", "rew", "next_obs", "done"))


PEERS: list[Library] = [_Peer()]
