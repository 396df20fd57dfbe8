"""Episodes with random actions in a vector environment."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.spaces import random_actions
from pytorchrl.agent.envs.vec_env import VecEnv

_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class VectorPlay:
    """Statistics of episodes with random actions."""

    returns: tuple[float, ...]
    """Of the episodes that ended."""
    lengths: tuple[int, ...]
    rewards: tuple[float, float]
    """The smallest and the largest."""
    steps_per_second: float
    """Transitions of all environments together."""


def play_vector_at_random(envs: VecEnv, episodes: int, seed: int) -> VectorPlay:
    """Step with random actions until a number of episodes have ended, or ten seconds have passed.

    Args:
        envs: reset here.
        episodes: number of episodes.
        seed: of the environments and of the actions.

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface.
    """
    random = np.random.default_rng(seed)
    envs.reset(seed)
    ended: list[EpisodeRecord] = []
    rewards, transitions, seconds = [np.inf, -np.inf], 0, 0.0
    while len(ended) < episodes and seconds < _MOST_SECONDS:
        actions = random_actions(envs.action_space, envs.num_envs, random)
        began = time.perf_counter()
        step = envs.step(torch.from_numpy(actions) if envs.takes_tensors else actions)
        seconds += time.perf_counter() - began
        paid = step.reward if step.made is None else step.reward[step.made]
        transitions += paid.size
        if paid.size:
            rewards = [min(rewards[0], float(paid.min())), max(rewards[1], float(paid.max()))]
        ended += envs.finished_episodes
    ended = ended[:episodes]
    return VectorPlay(
        tuple(one.episode_return for one in ended),
        tuple(one.length for one in ended),
        (rewards[0], rewards[1]),
        transitions / seconds,
    )
