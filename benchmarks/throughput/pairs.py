"""The compositions that are compared: the same task in pytorchrl and in stable-baselines3.

The two halves of a pair differ only in the library: networks, batches, schedule of updates, kind and learning rate of
the optimiser, gradient clipping, exploration and the target networks' updates are the same. Each library has its
defaults otherwise: pytorchrl always uses Adam's fused step, for instance, and stable-baselines3 does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import sb3_contrib
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

import pytorchrl as prl
from benchmarks.throughput.cleanrl_control import Train, cleanrl_ppo, cleanrl_sac, cleanrl_td3

PairName: TypeAlias = Literal["dqn", "ppo", "sac", "td3", "a2c", "trpo", "sac_halfcheetah", "td3_halfcheetah"]

_PENDULUM, _HALF_CHEETAH = "Pendulum-v1", "HalfCheetah-v5"

SAC_BATCH = 256
SAC_HIDDEN_SIZES = (256, 256)
SAC_CRITICS = 2


@dataclass(frozen=True)
class Pair:
    """One task, composed twice."""

    title: str
    """What is compared, for a table."""
    target_ratio: float
    """Speed that pytorchrl has to reach, relative to stable-baselines3."""
    warm_up_steps: int
    """Environment steps before the clock starts: random actions, compilation, first updates."""
    steps: int
    """Environment steps that are timed; both numbers end with an update phase."""
    quick_steps: int
    """As ``steps``, for a run that only shows that everything works."""
    ours: Callable[[int], prl.Scheme]
    """Makes pytorchrl's half from a seed."""
    theirs: Callable[[int], BaseAlgorithm]
    """Makes stable-baselines3's half from a seed."""
    cleanrl: Callable[[int], Train] | None = None
    """Makes from a seed the function that trains as CleanRL's script does."""


# DQN: the target network is copied every 500 environment steps, that is every 125 updates. Not double, since
# stable-baselines3's is not.
_DQN_TARGET_EVERY, _DQN_UPDATE_EVERY = 500, 4


def _our_dqn(seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(
            lr=1e-3,
            gamma=0.99,
            epsilon=prl.LinearSchedule(1.0, 0.05, fraction=0.1),
            start_steps=1_000,
            update_every=_DQN_UPDATE_EVERY,
            mini_batch_size=128,
            double=False,
            polyak=0.0,
            target_update_interval=_DQN_TARGET_EVERY // _DQN_UPDATE_EVERY,
            max_grad_norm=10.0,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
        prl.ReplayBuffer.create_factory(size=50_000),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=1),
        seed=seed,
    )


def _their_dqn(seed: int) -> BaseAlgorithm:
    return sb3.DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        gamma=0.99,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.05,
        exploration_fraction=0.1,
        learning_starts=1_000,
        train_freq=_DQN_UPDATE_EVERY,
        gradient_steps=1,
        batch_size=128,
        tau=1.0,
        target_update_interval=_DQN_TARGET_EVERY,
        max_grad_norm=10.0,
        buffer_size=50_000,
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
    )


# PPO: 8 x 128 transitions in 4 batches of 256.
_PPO_ENVS, _PPO_ROLLOUT = 8, 128


def _our_ppo(seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(
            lr=3e-4,
            gamma=0.99,
            num_epochs=4,
            num_mini_batch=4,
            clip_param=0.2,
            # Half the squared error times 1 is stable-baselines3's squared error times 0.5.
            value_loss_coef=1.0,
            entropy_coef=0.0,
            max_grad_norm=0.5,
            test_every=0,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64), activation="tanh"),
        prl.GAEBuffer.create_factory(size=_PPO_ROLLOUT, gae_lambda=0.95),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=_PPO_ENVS),
        seed=seed,
    )


def _their_ppo(seed: int) -> BaseAlgorithm:
    return sb3.PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=_PPO_ENVS, seed=seed),
        learning_rate=3e-4,
        gamma=0.99,
        n_epochs=4,
        n_steps=_PPO_ROLLOUT,
        batch_size=_PPO_ENVS * _PPO_ROLLOUT // 4,
        clip_range=0.2,
        gae_lambda=0.95,
        vf_coef=0.5,
        ent_coef=0.0,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )


def _cleanrl_ppo(seed: int) -> Train:
    return cleanrl_ppo(
        "CartPole-v1",
        seed,
        lr=3e-4,
        hidden=(64, 64),
        num_envs=_PPO_ENVS,
        rollout=_PPO_ROLLOUT,
        epochs=4,
        batches=4,
    )


def _our_sac(seed: int, env: str = _PENDULUM) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(
            lr_pi=3e-4,
            lr_q=3e-4,
            lr_alpha=3e-4,
            gamma=0.99,
            polyak=0.995,
            num_critics=SAC_CRITICS,
            start_steps=1_000,
            update_every=1,
            mini_batch_size=SAC_BATCH,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=SAC_HIDDEN_SIZES),
        prl.ReplayBuffer.create_factory(size=50_000),
        prl.VecEnv.create_factory(env, num_envs=1),
        seed=seed,
    )


def _their_sac(seed: int, env: str = _PENDULUM) -> BaseAlgorithm:
    return sb3.SAC(
        "MlpPolicy",
        env,
        learning_rate=3e-4,
        gamma=0.99,
        tau=0.005,
        ent_coef="auto",
        learning_starts=1_000,
        train_freq=1,
        gradient_steps=1,
        batch_size=SAC_BATCH,
        buffer_size=50_000,
        policy_kwargs={
            "net_arch": list(SAC_HIDDEN_SIZES),
            "activation_fn": torch.nn.ReLU,
            "n_critics": SAC_CRITICS,
        },
        seed=seed,
        device="cpu",
    )


def _cleanrl_sac(seed: int, env: str = _PENDULUM) -> Train:
    return cleanrl_sac(
        env, seed, lr=3e-4, hidden=SAC_HIDDEN_SIZES, batch=SAC_BATCH, start_steps=1_000, buffer_size=50_000
    )


# TD3: both libraries have actions within [-1, 1] where they add noise to them.
_TD3_NOISE = 0.1


def _our_td3(seed: int, env: str = _PENDULUM) -> prl.Scheme:
    return prl.Scheme(
        prl.TD3.create_factory(
            lr_pi=1e-3,
            lr_q=1e-3,
            gamma=0.99,
            polyak=0.995,
            num_critics=2,
            policy_delay=2,
            exploration_noise=_TD3_NOISE,
            target_noise=0.2,
            target_noise_clip=0.5,
            start_steps=1_000,
            update_every=1,
            mini_batch_size=256,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        prl.ReplayBuffer.create_factory(size=50_000),
        prl.VecEnv.create_factory(env, num_envs=1),
        seed=seed,
    )


def _their_td3(seed: int, env: str = _PENDULUM) -> BaseAlgorithm:
    actions = 1 if env == _PENDULUM else 6
    return sb3.TD3(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        gamma=0.99,
        tau=0.005,
        policy_delay=2,
        action_noise=NormalActionNoise(np.zeros(actions), np.full(actions, _TD3_NOISE)),
        target_policy_noise=0.2,
        target_noise_clip=0.5,
        learning_starts=1_000,
        train_freq=1,
        gradient_steps=1,
        batch_size=256,
        buffer_size=50_000,
        policy_kwargs={"net_arch": [256, 256], "activation_fn": torch.nn.ReLU, "n_critics": 2},
        seed=seed,
        device="cpu",
    )


def _cleanrl_td3(seed: int, env: str = _PENDULUM) -> Train:
    return cleanrl_td3(env, seed, lr=1e-3, hidden=(256, 256), batch=256, start_steps=1_000, buffer_size=50_000)


# A2C: the defaults of stable-baselines3, 5 steps of 8 environments.
_A2C_ENVS, _A2C_ROLLOUT = 8, 5


def _our_a2c(seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.A2C.create_factory(
            lr=7e-4,
            gamma=0.99,
            # Half the squared error times 1 is stable-baselines3's squared error times 0.5.
            value_loss_coef=1.0,
            entropy_coef=0.0,
            max_grad_norm=0.5,
            test_every=0,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64), activation="tanh"),
        prl.GAEBuffer.create_factory(size=_A2C_ROLLOUT, gae_lambda=1.0),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=_A2C_ENVS),
        seed=seed,
    )


def _their_a2c(seed: int) -> BaseAlgorithm:
    return sb3.A2C(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=_A2C_ENVS, seed=seed),
        learning_rate=7e-4,
        gamma=0.99,
        n_steps=_A2C_ROLLOUT,
        gae_lambda=1.0,
        vf_coef=0.5,
        ent_coef=0.0,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )


# TRPO: the policy's step is sb3-contrib's, and so is the fit of the value function, 10 passes of batches of 128.
_TRPO_ENVS, _TRPO_ROLLOUT, _TRPO_VALUE_BATCH, _TRPO_VALUE_EPOCHS = 8, 256, 128, 10


def _our_trpo(seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.TRPO.create_factory(
            lr_value=1e-3,
            gamma=0.99,
            max_kl=0.01,
            damping=0.1,
            cg_iterations=15,
            backtracks=10,
            value_epochs=_TRPO_VALUE_EPOCHS,
            value_mini_batches=_TRPO_ENVS * _TRPO_ROLLOUT // _TRPO_VALUE_BATCH,
            test_every=0,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64), activation="tanh"),
        prl.GAEBuffer.create_factory(size=_TRPO_ROLLOUT, gae_lambda=0.95),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=_TRPO_ENVS),
        seed=seed,
    )


def _their_trpo(seed: int) -> BaseAlgorithm:
    model: BaseAlgorithm = sb3_contrib.TRPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=_TRPO_ENVS, seed=seed),
        learning_rate=1e-3,
        gamma=0.99,
        n_steps=_TRPO_ROLLOUT,
        batch_size=_TRPO_VALUE_BATCH,
        n_critic_updates=_TRPO_VALUE_EPOCHS,
        target_kl=0.01,
        cg_damping=0.1,
        cg_max_steps=15,
        line_search_max_iter=10,
        gae_lambda=0.95,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )
    return model


PAIRS: Mapping[PairName, Pair] = {
    "dqn": Pair("DQN CartPole-v1", 1.6, 1_400, 12_000, 2_000, _our_dqn, _their_dqn),
    "ppo": Pair("PPO CartPole-v1", 1.5, 4_096, 81_920, 8_192, _our_ppo, _their_ppo, _cleanrl_ppo),
    "sac": Pair("SAC Pendulum-v1", 1.25, 1_050, 500, 100, _our_sac, _their_sac),
    "td3": Pair("TD3 Pendulum-v1", 1.25, 1_050, 500, 100, _our_td3, _their_td3),
    "a2c": Pair("A2C CartPole-v1", 1.5, 4_000, 40_000, 8_000, _our_a2c, _their_a2c),
    "trpo": Pair("TRPO CartPole-v1", 1.5, 2_048, 20_480, 4_096, _our_trpo, _their_trpo),
    "sac_halfcheetah": Pair(
        *("SAC HalfCheetah-v5", 1.25, 1_050, 500, 100),
        *(partial(make, env=_HALF_CHEETAH) for make in (_our_sac, _their_sac, _cleanrl_sac)),
    ),
    "td3_halfcheetah": Pair(
        *("TD3 HalfCheetah-v5", 1.25, 1_050, 500, 100),
        *(partial(make, env=_HALF_CHEETAH) for make in (_our_td3, _their_td3, _cleanrl_td3)),
    ),
}
