"""The algorithms of stable-baselines3 and sb3-contrib, with the settings that ours have in MuJoCo."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from benchmarks.learning.million_compositions import PPO as NORMALISED_PPO
from benchmarks.learning.mujoco_compositions import (
    CROSSQ,
    OFF_POLICY,
    ON_POLICY,
    PPO,
    SAC,
    TD3,
    TQC,
    TRPO,
    TRPO_VALUE_BATCH,
    TRPO_VALUE_EPOCHS,
)
from benchmarks.shared.stable_baselines3 import Records, without_log_folder


def train_peer(
    name: str, env: gym.Env[Any, Any], seed: int, target_steps: int, folder: Path, steps_of_a_record: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Train one of the peers, and write its returns as our runs do.

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
    model = _MAKE[name](env, {"seed": seed, "device": "cpu"})
    if isinstance(model, OnPolicyAlgorithm):
        # As many rollouts as ours learns from; a rollout that is begun would be finished beyond the target.
        target_steps -= target_steps % model.n_steps
    without_log_folder(model).learn(target_steps, callback=Records(folder / "metrics.jsonl", steps_of_a_record))
    normalised = model.get_vec_normalize_env()

    def policy(observation: NDArray[Any]) -> NDArray[Any]:
        seen = observation if normalised is None else normalised.normalize_obs(observation)
        return model.predict(seen, deterministic=True)[0]

    return policy


_TARGETS = {"tau": OFF_POLICY["tau"]}


def _off_policy(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "learning_rate": own["lr"],
        "gamma": OFF_POLICY["gamma"],
        "learning_starts": OFF_POLICY["start_steps"],
        "batch_size": OFF_POLICY["mini_batch_size"],
        "buffer_size": OFF_POLICY["buffer_size"],
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(own["hidden_sizes"]), "activation_fn": torch.nn.ReLU},
    }


def _noise(env: gym.Env[Any, Any]) -> NormalActionNoise:
    assert env.action_space.shape is not None
    size = env.action_space.shape[0]
    return NormalActionNoise(np.zeros(size), np.full(size, TD3["noise"]))


def _on_policy() -> dict[str, Any]:
    sizes = list(ON_POLICY["hidden_sizes"])
    return {
        "gamma": ON_POLICY["gamma"],
        "gae_lambda": ON_POLICY["gae_lambda"],
        "n_steps": ON_POLICY["rollout_steps"],
        "policy_kwargs": {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": torch.nn.Tanh},
    }


def _sac(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    return sb3.SAC("MlpPolicy", env, ent_coef="auto", **_off_policy(SAC), **_TARGETS, **how)


def _td3(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    return sb3.TD3("MlpPolicy", env, action_noise=_noise(env), **_off_policy(TD3), **_TARGETS, **how)


def _ddpg(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    return sb3.DDPG("MlpPolicy", env, action_noise=_noise(env), **_off_policy(TD3), **_TARGETS, **how)


def _tqc(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    settings = _off_policy(SAC) | _TARGETS
    of_networks = {"n_critics": TQC["num_critics"], "n_quantiles": TQC["num_quantiles"]}
    settings["policy_kwargs"] = settings["policy_kwargs"] | of_networks
    model: BaseAlgorithm = sb3_contrib.TQC(
        "MlpPolicy", env, top_quantiles_to_drop_per_net=TQC["num_dropped"], **settings, **how
    )
    return model


def _crossq(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    model: BaseAlgorithm = sb3_contrib.CrossQ(
        "MlpPolicy", env, policy_delay=CROSSQ["policy_delay"], **_off_policy(CROSSQ), **how
    )
    return model


def _ppo(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    return sb3.PPO(
        "MlpPolicy",
        env,
        learning_rate=PPO["lr"],
        clip_range=PPO["clip"],
        n_epochs=PPO["epochs"],
        batch_size=PPO["mini_batch_size"],
        max_grad_norm=PPO["max_grad_norm"],
        vf_coef=0.5,
        **_on_policy(),
        **how,
    )


def _normalised_ppo(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    of_ours = NORMALISED_PPO
    made = DummyVecEnv([lambda: Monitor(env)])
    sizes = list(of_ours["hidden_sizes"])
    return sb3.PPO(
        "MlpPolicy",
        VecNormalize(made, gamma=of_ours["gamma"], clip_reward=of_ours["largest_reward"]),
        learning_rate=lambda left: left * of_ours["lr"],
        clip_range=of_ours["clip"],
        clip_range_vf=of_ours["clip"],
        n_epochs=of_ours["epochs"],
        batch_size=of_ours["rollout_steps"] // of_ours["mini_batches"],
        max_grad_norm=of_ours["max_grad_norm"],
        # Its squared error is not halved, as ours and CleanRL's are.
        vf_coef=of_ours["value_coefficient"] / 2,
        gamma=of_ours["gamma"],
        gae_lambda=of_ours["gae_lambda"],
        n_steps=of_ours["rollout_steps"],
        policy_kwargs={"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": torch.nn.Tanh},
        **how,
    )


def _trpo(env: gym.Env[Any, Any], how: dict[str, Any]) -> BaseAlgorithm:
    model: BaseAlgorithm = sb3_contrib.TRPO(
        "MlpPolicy",
        env,
        learning_rate=TRPO["lr_value"],
        target_kl=TRPO["max_kl"],
        cg_damping=TRPO["damping"],
        cg_max_steps=TRPO["cg_iterations"],
        line_search_max_iter=TRPO["backtracks"],
        batch_size=TRPO_VALUE_BATCH,
        n_critic_updates=TRPO_VALUE_EPOCHS,
        **_on_policy(),
        **how,
    )
    return model


_MAKE: Mapping[str, Callable[[gym.Env[Any, Any], dict[str, Any]], BaseAlgorithm]] = {
    "SAC of stable-baselines3": _sac,
    "TD3 of stable-baselines3": _td3,
    "DDPG of stable-baselines3": _ddpg,
    "PPO of stable-baselines3": _ppo,
    "normalised PPO of stable-baselines3": _normalised_ppo,
    "TRPO of sb3-contrib": _trpo,
    "TQC of sb3-contrib": _tqc,
    "CrossQ of sb3-contrib": _crossq,
}
