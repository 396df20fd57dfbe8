"""How good is it now: whole episodes in environments of their own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.collector import Seed, to_device


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of an evaluation's episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    @property
    def metrics(self) -> dict[str, float]:
        """As they are logged."""
        return {
            "test/return": self.mean_return,
            "test/return_std": float(np.std(self.returns)),
            "test/episode_length": float(np.mean(self.lengths)),
        }


def evaluate(algorithm: Algorithm, envs: VecEnv, episodes: int, seed: Seed) -> Evaluation:
    """Act deterministically for a number of episodes.

    Each environment plays its share of the episodes, however long they are: taking the first to end would favour short
    ones.

    Args:
        algorithm: acts; its random generators are not used.
        envs: reset here; not those of training.
        episodes: how many, from 1.
        seed: of the environments.
    """
    share = [(episodes + env) // envs.num_envs for env in range(envs.num_envs)]
    rhs: Any
    observation, rhs = envs.reset(seed), algorithm.actor.initial_memory(envs.num_envs)
    done = np.ones((envs.num_envs, 1), np.float32)
    running_returns, running_lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    returns: list[float] = []
    lengths: list[int] = []
    while len(returns) < episodes:
        obs = to_device(observation, algorithm.device)
        acting = algorithm.acting_step(obs, rhs, torch.from_numpy(done).to(algorithm.device), deterministic=True)
        step = envs.step(acting.env_action.cpu().numpy())
        observation, rhs = step.observation, acting.rhs
        running_returns += step.reward[:, 0]
        running_lengths += 1
        ended = (step.terminated | step.truncated)[:, 0]
        for env in np.flatnonzero(ended):
            if share[env]:
                share[env] -= 1
                returns.append(float(running_returns[env]))
                lengths.append(int(running_lengths[env]))
            running_returns[env], running_lengths[env] = 0.0, 0
        done = ended[:, None].astype(np.float32)
    return Evaluation(tuple(returns), tuple(lengths))
