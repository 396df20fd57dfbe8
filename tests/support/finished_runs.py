"""Runs of every kind of network that finished, whose folders tests only read."""

from pathlib import Path
from typing import Any

import pytorchrl as prl

RUNS: dict[str, tuple[Any, Any, Any, Any]] = {
    "dqn": (
        prl.DQN.create_factory(start_steps=50, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), normalize_observations=True),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "dqn with memory": (
        prl.DQN.create_factory(start_steps=50, mini_batch_size=8, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), memory="lstm", memory_size=8),
        prl.ReplayBuffer.create_factory(size=500, sequences=prl.Sequences(5)),
        "CartPole-v1",
    ),
    "sac": (
        prl.SAC.create_factory(start_steps=50, mini_batch_size=8, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "Pendulum-v1",
    ),
    "iqn": (
        prl.IQN.create_factory(start_steps=50, risk=prl.risk_measures.CVaR(0.25), mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "c51": (
        prl.CategoricalDQN.create_factory(start_steps=50, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "dueling iqn with a hidden layer": (
        prl.IQN.create_factory(start_steps=50, quantile_layers=(8,), mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), dueling=True),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "naf": (
        prl.NAF.create_factory(start_steps=50, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "Pendulum-v1",
    ),
    "ppo with memory": (
        prl.PPO.create_factory(num_mini_batch=1, test_every=100, num_test_episodes=2),
        prl.OnPolicyActor.create_factory(hidden_sizes=(16,), memory="gru", memory_size=8, normalize_observations=True),
        prl.GAEBuffer.create_factory(size=50),
        "Pendulum-v1",
    ),
}


def trained(name: str, folder: Path) -> prl.Learner:
    algorithm, actor, storage, env = RUNS[name]
    scheme = prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory(env), seed=1)
    learner = prl.Learner(scheme, target_steps=150, log_dir=folder)
    learner.run()
    return learner
