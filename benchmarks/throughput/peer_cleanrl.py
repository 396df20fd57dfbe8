"""DQN on Atari as CleanRL's script has it: the same wrappers, network, buffer and loop, in functions that can be timed.

CleanRL is scripts, not a library: its package on PyPI holds older ones, which need the gym before gymnasium.
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, RecordEpisodeStatistics, ResizeObservation
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import (
    ClipRewardEnv,
    EpisodicLifeEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
)
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor, nn


def cleanrl_envs(env: str, num_envs: int) -> gym.vector.SyncVectorEnv:
    """Return the vector environment of the script."""
    return gym.vector.SyncVectorEnv(
        [lambda: _wrapped(env)] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )


def cleanrl_dqn(
    env: str, seed: int, *, lr: float, buffer_size: int, epsilon: float, train_every: int, target_every: int
) -> Callable[[int, bool], None]:
    """Return a function that trains for a number of steps, with updates or without; a second call continues."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    envs = cleanrl_envs(env, 1)
    actions = int(envs.single_action_space.n)  # type: ignore[attr-defined]
    q, target = _network(actions), _network(actions)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=lr)
    buffer = ReplayBuffer(
        buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        "cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    observation: NDArray[Any] = envs.reset(seed=seed)[0]

    def update() -> None:
        batch = buffer.sample(32)
        with torch.no_grad():
            best = target(_scaled(batch.next_observations)).max(dim=1).values
            wanted = batch.rewards.flatten() + 0.99 * best * (1 - batch.dones.flatten())
        value = q(_scaled(batch.observations)).gather(1, batch.actions).squeeze()
        loss = nn.functional.mse_loss(wanted, value)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def train(steps: int, learns: bool) -> None:
        nonlocal observation
        for step in range(1, steps + 1):
            if generator.random() < epsilon:
                chosen = np.array([envs.single_action_space.sample()])
            else:
                with torch.no_grad():
                    chosen = q(_scaled(torch.from_numpy(observation))).argmax(dim=1).numpy()
            following, reward, terminated, truncated, infos = envs.step(chosen)
            last = following.copy()
            if "final_obs" in infos:
                for index in np.flatnonzero(terminated | truncated):
                    last[index] = infos["final_obs"][index]
            buffer.add(observation, last, chosen, reward, terminated, [{}])
            observation = following
            if learns and step % train_every == 0:
                update()
            if learns and step % target_every == 0:
                target.load_state_dict(q.state_dict())

    return train


def _wrapped(name: str) -> gym.Env[Any, Any]:
    env: Any = MaxAndSkipEnv(NoopResetEnv(RecordEpisodeStatistics(gym.make(name)), noop_max=30), skip=4)
    env = ClipRewardEnv(FireResetEnv(EpisodicLifeEnv(env)))
    return FrameStackObservation(GrayscaleObservation(ResizeObservation(env, (84, 84))), 4)


def _network(actions: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, stride=4), nn.ReLU()),
        *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, stride=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions)),
    )


def _scaled(observation: Tensor) -> Tensor:
    return observation.float() / 255.0
