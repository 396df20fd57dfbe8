"""stable-baselines3: buffers of numpy arrays, indexed by numpy; no prioritised replay."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer, RolloutBuffer

from benchmarks.storages.replay_content import GAMMA, Content, Rollout
from benchmarks.storages.replay_ours import GAE_LAMBDA, Library, Sampling, Tensors, Work


class _Peer:
    name = "stable-baselines3"

    def uniform(self, content: Content, batch_size: int) -> Sampling:
        return _sb3_sampling(self._filled(ReplayBuffer, content), batch_size)

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling:
        buffer = self._filled(NStepReplayBuffer, content, n_steps=n, gamma=GAMMA)
        return _sb3_sampling(buffer, batch_size)

    def prioritized(self, content: Content, batch_size: int) -> None:
        return None

    def insertion(self, content: Content) -> Work:
        buffer = self._empty(ReplayBuffer, content)
        infos: list[dict[str, Any]] = [{} for _ in range(content.environments)]
        steps = cycle(
            [
                (
                    content.observation[step],
                    content.next_observation[step],
                    content.action[step],
                    content.reward[step, :, 0],
                    content.done[step, :, 0],
                    infos,
                )
                for step in range(len(content.observation))
            ]
        )
        for _ in range(content.steps):
            buffer.add(*next(steps))
        return lambda: buffer.add(*next(steps))

    def advantages(self, rollout: Rollout) -> Work:
        """Compute GAE; it supports only terminations, which are all that the rollout holds."""
        steps, environments = rollout.rewards.shape
        box = Box(-1, 1, (1,))
        buffer = RolloutBuffer(steps, box, box, "cpu", GAE_LAMBDA, GAMMA, environments)
        buffer.rewards[:], buffer.values[:] = rollout.rewards, rollout.values
        buffer.episode_starts[1:] = rollout.ends[:-1]
        last_values = torch.from_numpy(rollout.next_values[-1])
        return lambda: buffer.compute_returns_and_advantage(last_values, rollout.ends[-1])

    def _empty(self, buffer_class: Callable[..., Any], content: Content, **options: Any) -> Any:
        pixels = content.observation.dtype == np.uint8
        shape = content.observation.shape[2:]
        observation = Box(0, 255, shape, np.uint8) if pixels else Box(-np.inf, np.inf, shape)
        action = Discrete(6) if pixels else Box(-1, 1, content.action.shape[2:])
        return buffer_class(content.transitions, observation, action, "cpu", n_envs=content.environments, **options)

    def _filled(self, buffer_class: Callable[..., Any], content: Content, **options: Any) -> Any:
        buffer = self._empty(buffer_class, content, **options)
        for array, source in (
            (buffer.observations, content.observation),
            (buffer.next_observations, content.next_observation),
            (buffer.actions, content.action),
            (buffer.rewards, content.reward[..., 0]),
            (buffer.dones, content.done[..., 0]),
            (buffer.timeouts, content.truncated[..., 0]),
        ):
            array[:] = np.resize(source, array.shape)
        buffer.full = True
        return buffer


def _sb3_sampling(buffer: Any, batch_size: int) -> Sampling:
    def call() -> Tensors:
        batch = buffer.sample(batch_size)
        return batch.observations, batch.actions, batch.rewards, batch.next_observations, batch.dones

    return call


PEERS: list[Library] = [_Peer()]
