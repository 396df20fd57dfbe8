"""Small compositions of a HogwildScheme, and an ordinary scheme of the same parts."""

from collections.abc import Callable
from typing import Any

import pytorchrl as prl
from storages.transition import ERRORS

Parts = Callable[[], dict[str, Any]]
TARGET = 150


def a3c(**changes: Any) -> dict[str, Any]:
    """Clipped gradients, RMSprop and a schedule of the learning rate."""
    return {
        "algo_factory": prl.A2C.create_factory(
            lr=prl.LinearSchedule(5e-3, 0.0), max_grad_norm=0.5, test_every=0, num_test_episodes=2
        ),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,), shared_body=True),
        "storage_factory": prl.VanillaOnPolicyBuffer.create_factory(size=5),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    }


def nsq(**changes: Any) -> dict[str, Any]:
    """A target network that is updated every 20 steps of all processes, and the centred form of RMSprop."""
    return {
        "algo_factory": prl.NStepQLearning.create_factory(
            lr=1e-3, optimizer=prl.RMSprop(), target_update_interval_steps=20, test_every=0
        ),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.VanillaOnPolicyBuffer.create_factory(size=5),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    }


def explored_apart(**changes: Any) -> dict[str, Any]:
    """An explorer whose epsilon depends on the place of an environment among those of all processes."""
    algorithm = prl.NStepQLearning.create_factory(
        lr=1e-3, optimizer=prl.SGD(), explorer=prl.ApeXEpsilonGreedy(0.5, 7.0), test_every=0
    )
    return nsq(algo_factory=algorithm, **changes)


def noisy(**changes: Any) -> dict[str, Any]:
    """Layers with random weights, drawn from the actor's generator."""
    return nsq(actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), noisy=True), **changes)


def recurrent(**changes: Any) -> dict[str, Any]:
    """V-trace, several minibatches of sequences, a memory, normalised rewards and two environments."""
    return {
        "algo_factory": prl.IMPALA.create_factory(
            num_mini_batch=2, optimizer=prl.SGD(momentum=0.9), lr=1e-2, test_every=0
        ),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=8),
        "storage_factory": prl.VTraceBuffer.create_factory(size=5),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", 2),
        "normalize_rewards": "returns",
        **changes,
    }


def pcl(**changes: Any) -> dict[str, Any]:
    """New steps and replayed episodes, two optimisers, updates at the end of each episode."""
    return {
        "algo_factory": prl.PCL.create_factory(
            episodes_per_update=1, start_steps=20, mini_batch_size=4, optimizer=prl.RMSprop(), test_every=0
        ),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,), shared_body=False),
        "storage_factory": prl.ReplayBuffer.create_factory(size=100, sequences=prl.Sequences(8)),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    }


def dqn(**changes: Any) -> dict[str, Any]:
    """Priorities in each process, and a target network that is updated every 4 updates of all processes."""
    return {
        "algo_factory": prl.DQN.create_factory(
            start_steps=20, mini_batch_size=8, target_update_interval=4, polyak=0.0, optimizer=prl.SGD(), test_every=0
        ),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.PERBuffer.create_factory(size=100, alpha=0.6, n_step=2),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", 2),
        **changes,
    }


def train(scheme: prl.Scheme, until: int, target: int = TARGET) -> list[dict[str, float]]:
    """Train like a learner, but only up to a number of steps; returns the metrics of the updates."""
    scheme.set_progress(scheme.steps, target)
    metrics = []
    while scheme.steps < until:
        _, due = scheme.collect(until)
        scheme.set_progress(scheme.steps, target)
        for _ in range(due):
            for one in scheme.update():
                metrics.append({name: float(value) for name, value in one.items() if name != ERRORS})
    return metrics


def processes_of(scheme: prl.Scheme) -> list[Any]:
    """The learner's handles of the processes."""
    assert isinstance(scheme, prl.HogwildScheme)
    assert scheme._processes is not None
    return scheme._processes.all
