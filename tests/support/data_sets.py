"""Small data sets, and schemes that learn from them without acting."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.scheme.dataset_factory import DatasetFactory


def balance(obs: Any) -> Any:
    """Push the cart of CartPole below the pole, which balances it for a whole episode of 500 steps."""
    position, velocity, angle, turning = obs.T
    return (angle + 0.3 * turning + 0.05 * position + 0.1 * velocity > 0).astype(np.int64)[:, None]


def damp(obs: Any) -> Any:
    """Push against the rotation of Pendulum."""
    return np.clip(-obs[:, 2:], -2, 2).astype(np.float32)


def recorded(path: Path, env: str = "CartPole-v1", steps: int = 60, seed: int = 0, **env_kwargs: Any) -> Path:
    """A data set of some steps of a simple policy; created only once."""
    if not path.exists():
        policy: Callable[[Any], Any] = balance if env == "CartPole-v1" else damp
        envs = prl.VecEnv.create_factory(env, env_kwargs={"max_episode_steps": 20} | env_kwargs)
        collect_demonstrations(policy, envs, path=path, steps=steps, seed=seed)
    return path


def cloning(data: Path, storage: Any = None, **changes: Any) -> prl.Scheme:
    """Behaviour cloning of a data set, with a storage to fill from it or a factory that already fills one."""
    filled = storage or prl.ReplayBuffer.create_factory(size=100)
    algorithm = {"mini_batch_size": 8, "test_every": 0, "num_test_episodes": 2} | changes.pop("algorithm", {})
    actor = {"hidden_sizes": (8,)} | changes.pop("actor", {})
    return prl.Scheme(
        prl.BehaviourCloning.create_factory(**algorithm),
        prl.OffPolicyActor.create_factory(**actor),
        filled if isinstance(filled, DatasetFactory) else prl.from_dataset(filled, data),
        **changes,
    )
