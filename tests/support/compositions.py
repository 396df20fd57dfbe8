"""Small compositions that train in a second."""

from typing import Any

import pytorchrl as prl


def dqn_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    algorithm = {"start_steps": 40, "mini_batch_size": 16, "test_every": 100, "num_test_episodes": 2}
    return prl.Scheme(
        algo_factory=changes.pop("cls", prl.DQN).create_factory(**(algorithm | changes.pop("algorithm", {}))),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=changes.pop("storage", None) or prl.ReplayBuffer.create_factory(size=changes.pop("size", 150)),
        train_envs_factory=changes.pop("envs", None) or prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=seed,
        **changes,
    )


def sac_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.SAC.create_factory(start_steps=40, mini_batch_size=16, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=changes.pop("storage", None) or prl.ReplayBuffer.create_factory(size=150),
        train_envs_factory=prl.VecEnv.create_factory("Pendulum-v1"),
        seed=seed,
        **changes,
    )


def ppo_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.PPO.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0), num_epochs=2, num_mini_batch=2, test_every=100, num_test_episodes=2
        ),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=changes.pop("storage", None) or prl.GAEBuffer.create_factory(size=16),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=seed,
        **changes,
    )


def qrdqn_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.QRDQN.create_factory(
            num_quantiles=5, polyak=0.0, target_update_interval=7, start_steps=40, mini_batch_size=16, test_every=0
        ),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=changes.pop("storage", None) or _priorities_and_n_steps(),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=seed,
        **changes,
    )


def iqn_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.MunchausenIQN.create_factory(
            num_quantiles=5,
            num_target_quantiles=4,
            risk=prl.risk_measures.CVaR(0.5),
            start_steps=40,
            mini_batch_size=16,
            test_every=0,
        ),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), noisy=True),
        storage_factory=changes.pop("storage", None) or _priorities_and_n_steps(),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=seed,
        **changes,
    )


def td3_scheme(seed: int = 0, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.TD3.create_factory(
            policy_delay=3, start_steps=40, update_every=2, mini_batch_size=16, test_every=0
        ),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=changes.pop("storage", None) or _priorities_and_n_steps(),
        train_envs_factory=prl.VecEnv.create_factory("Pendulum-v1"),
        seed=seed,
        **changes,
    )


def _priorities_and_n_steps() -> Any:
    return prl.PERBuffer.create_factory(size=150, n_step=3, alpha=0.6, beta=0.4, epsilon=0.01)


SCHEMES = {
    "dqn": dqn_scheme,
    "sac": sac_scheme,
    "ppo": ppo_scheme,
    "qrdqn": qrdqn_scheme,
    "iqn": iqn_scheme,
    "td3": td3_scheme,
}
