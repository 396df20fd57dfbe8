"""Data of Pendulum from a controller with different noise in different episodes."""

from pathlib import Path
from typing import Any

import numpy as np

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages.datasets import open_dataset, return_of


def mixed_swings(path: Path, episodes: int = 50, seed: int = 1) -> tuple[Path, float]:
    """A data set and its mean return: a fifth of the episodes is without noise, a fifth rarely swings up."""
    random = np.random.default_rng(seed)

    def act(observation: Any) -> Any:
        cosine, sine, turning = observation.T
        missing_energy = 15 - (turning**2 / 2 + 15 * cosine)
        hold = -10 * np.arctan2(sine, cosine) - 2 * turning
        action = np.where(cosine > 0.9, hold, 0.5 * turning * missing_energy).clip(-2, 2)
        noise = random.normal(0, np.linspace(0, 4, len(action)))
        return (action + noise).clip(-2, 2)[:, None].astype(np.float32)

    envs = prl.VecEnv.create_factory("Pendulum-v1", num_envs=5)
    collect_demonstrations(act, envs, path=path, episodes=episodes, seed=seed)
    return path, float(np.mean([return_of(episode) for episode in open_dataset(path)]))
