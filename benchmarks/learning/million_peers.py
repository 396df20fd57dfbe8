"""PPO of stable-baselines3 with normalised observations and rewards, with the settings that ours has in MuJoCo."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from benchmarks.learning.million_compositions import PPO
from benchmarks.shared.stable_baselines3 import Records, without_log_folder


def train_peer(
    name: str, env: gym.Env[Any, Any], seed: int, target_steps: int, folder: Path, steps_of_a_record: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Train PPO, and write its returns, which are not normalised, as our runs do.

    Args:
        name: of the peer.
        env: the environment to train in.
        seed: of all random numbers.
        target_steps: environment steps to train for.
        folder: where ``metrics.jsonl`` goes.
        steps_of_a_record: environment steps between its lines.

    Returns:
        The greedy policy, from observations (E, *obs) to actions (E, n).
    """
    if name != "PPO of stable-baselines3":
        raise ValueError(f"there is no peer {name}; PPO of stable-baselines3 is")
    normalised = VecNormalize(
        DummyVecEnv([lambda: Monitor(env)]), gamma=PPO["gamma"], clip_reward=PPO["largest_reward"]
    )
    sizes = list(PPO["hidden_sizes"])
    model = sb3.PPO(
        "MlpPolicy",
        normalised,
        learning_rate=lambda left: left * PPO["lr"],
        clip_range=PPO["clip"],
        clip_range_vf=PPO["clip"],
        n_epochs=PPO["epochs"],
        batch_size=PPO["rollout_steps"] // PPO["mini_batches"],
        max_grad_norm=PPO["max_grad_norm"],
        # Its squared error is not halved, as ours and CleanRL's are.
        vf_coef=PPO["value_coefficient"] / 2,
        gamma=PPO["gamma"],
        gae_lambda=PPO["gae_lambda"],
        n_steps=PPO["rollout_steps"],
        policy_kwargs={"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )
    # As many rollouts as ours learns from; a rollout that is begun would be finished beyond the target.
    target_steps -= target_steps % model.n_steps
    without_log_folder(model).learn(target_steps, callback=Records(folder / "metrics.jsonl", steps_of_a_record))

    def policy(observation: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(model.predict(normalised.normalize_obs(observation), deterministic=True)[0])

    return policy
